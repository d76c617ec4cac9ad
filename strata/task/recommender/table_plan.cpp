#include "strata/task/recommender/table_plan.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "strata/base/text_table.h"
#include "strata/base/units.h"
#include "strata/rowserver/capacity.h"
#include "strata/rowserver/rows/row_layout.h"
#include "strata/task/recommender/rows_cost.h"

namespace strata {
namespace {

struct TablesPlan {
  WorkerOptions worker;
  SampleIds ids;
  std::int64_t shards = 1, ranks = 1;
  bool local = true;
  std::int64_t memory = 0;
  WireBytes step;  // sum over all ranks and shards
};

TablesPlan plan_tables(const RecommenderFields& fields, const Recipe& recipe) {
  const EmbeddingOptions& embedding = fields.embedding;
  TablesPlan plan{.worker = worker_options(fields),
                  .shards = embedding.is_local()
                                ? embedding.shards
                                : static_cast<std::int64_t>(embedding.servers.size()),
                  .ranks = recipe.mesh.axes[Axis::kData],
                  .local = embedding.is_local(),
                  .memory = embedding.memory.count};
  plan.ids = sample_ids(fields, plan.worker);
  const double samples =
      std::ceil(static_cast<double>(recipe.train.mini_batch) / static_cast<double>(plan.ranks));
  std::vector<double> rows = plan.ids.of_table;
  for (double& count : rows) count *= samples;
  plan.step = wire_bytes(plan.worker.tables, rows, plan.shards, embedding.wire) *
              static_cast<double>(plan.ranks);
  return plan;
}

double rows_that_fit(const TablesPlan& plan, const RowLayout& layout) {
  return std::floor(static_cast<double>(plan.memory) / layout.cost_bytes()) *
         static_cast<double>(plan.shards);
}

std::string text_of(const TablesPlan& plan) {
  TextTable table("lrlrrrrrr");
  table.add_row({"table", "width", "rows as", "values", "states", "other", "bytes a row",
                 "ids a sample", "rows that fit alone"});
  for (std::size_t i = 0; i < plan.worker.tables.size(); ++i) {
    const FeatureSpec& spec = plan.worker.tables[i];
    const RowLayout layout(spec);
    table.add_row({spec.name, std::to_string(spec.width),
                   std::string(name_of(spec.precision)) + ", " + name_of(spec.optimizer.kind),
                   std::to_string(layout.value_bytes), std::to_string(4 * layout.num_states),
                   std::to_string(kRowOverheadBytes), std::to_string(layout.cost_bytes()),
                   format_count(plan.ids.of_table[i]),
                   plan.memory == 0 ? "no limit" : format_count(rows_that_fit(plan, layout))});
  }
  const auto shard = static_cast<double>(plan.shards);
  std::string text = table.text() + "\nrows       on " + std::to_string(plan.shards) +
                     (plan.local ? " local" : "") + (plan.shards == 1 ? " shard" : " shards") +
                     (plan.memory == 0 ? "" : " of " + format_bytes(plan.memory)) + "\n";
  text += std::string("wire       ") + (plan.local ? "nothing; of servers, " : "") +
          "each would get at most ";
  if (!plan.local) text.replace(text.rfind("each would get"), 14, "a server gets");
  text += format_bytes(std::llround(plan.step.received / shard)) + " and send " +
          format_bytes(std::llround(plan.step.sent / shard)) + " a step\n";
  for (const std::string& name : plan.ids.unbounded)
    text +=
        "           '" + name + "' may have any number of ids, 1 is reckoned with; set `last`\n";
  return text;
}

nlohmann::json json_of(const TablesPlan& plan) {
  nlohmann::json json{{"shards", plan.shards},
                      {"step_bytes_received", std::llround(plan.step.received)},
                      {"step_bytes_sent", std::llround(plan.step.sent)},
                      {"unbounded", plan.ids.unbounded},
                      {"tables", nlohmann::json::array()}};
  for (std::size_t i = 0; i < plan.worker.tables.size(); ++i) {
    const RowLayout layout(plan.worker.tables[i]);
    json["tables"].push_back({{"name", plan.worker.tables[i].name},
                              {"row_bytes", layout.cost_bytes()},
                              {"ids", plan.ids.of_table[i]}});
  }
  return json;
}

}  // namespace

PlanAppendix table_plan(const RecommenderFields& fields, const Recipe& recipe) {
  const TablesPlan plan = plan_tables(fields, recipe);
  return {.text = text_of(plan), .key = "embedding", .json = json_of(plan).dump()};
}

}  // namespace strata
