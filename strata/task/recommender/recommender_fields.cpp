#include "strata/task/recommender/recommender_fields.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/json_text.h"
#include "strata/checkpoint/folder.h"
#include "strata/rowserver/row_servers.h"
#include "strata/transport/server_address.h"

namespace strata {
namespace {

constexpr double kMostEpochs = 1e6;

void check_servers(const EmbeddingOptions& embedding, const std::string& where) {
  const auto refuse = [&](const std::string& what, const std::string& got, const std::string& fix) {
    throw UserError({.operation = "task.recipe",
                     .where = where,
                     .what = "embedding.servers: " + what,
                     .expected = "local, or HOST:PORT or unix:PATH, one a shard",
                     .got = got,
                     .fix = fix});
  };
  if (embedding.is_local()) return;
  if (embedding.servers.empty()) refuse("no servers are named", "an empty list", "name them");
  if (embedding.servers.size() > kMostShards)
    refuse("too many servers are named", std::to_string(embedding.servers.size()),
           "name at most " + std::to_string(kMostShards));
  for (const std::string& server : embedding.servers) try {
      parse_server_address(server);
    } catch (const UserError& error) {
      refuse(error.text().what, error.text().got, error.text().fix);
    }
}

// Refusals of the net name the field; this adds its place in the recipe.
void check_model(const RecommenderFields& recipe,
                 const std::function<std::string(const std::string&)>& where) {
  try {
    completed(recipe.model, inputs_of(recipe));
  } catch (const UserError& error) {
    ErrorText text = error.text();
    text.what = text.where + ": " + text.what;
    text.where = where(text.where);
    throw UserError(std::move(text));
  }
}

}  // namespace

// PyTorch's constants, with three times PyTorch's rate, because by default it decays along a
// cosine. With the beta2 for text, mean squares cover 20 steps, too few if ids come and go;
// measured in bench/recommender_quality.
OptimizerOptions recommender_optimizer() {
  return {.learning_rate = 3e-3, .beta2 = 0.999, .weight_decay = 0.01};
}

void describe(OptionSet& set, RecommenderFields& recipe) {
  describe(set, "model", recipe.model);
  describe(set, "data", recipe.data);
  set.add("train.epochs", &recipe.epochs,
          {.help = "Passes over the training samples; 0: as many as train.steps takes.",
           .minimum = 0,
           .maximum = kMostEpochs});
  describe(set, "embedding", recipe.embedding);
}

void check(const RecommenderFields& recipe,
           const std::function<std::string(const std::string&)>& where) {
  check(recipe.data, "data", where);
  check_servers(recipe.embedding, where("embedding.servers"));
  check_model(recipe, where);
  const WorkerOptions worker = worker_options(recipe);
  if (recipe.embedding.mode == EmbeddingMode::kSynchronous)
    for (std::size_t table = 0; table < worker.tables.size(); ++table)
      if (worker.staleness[table] > 1)
        throw UserError({.operation = "task.recipe",
                         .where = where("embedding.mode"),
                         .what = "embedding.mode: rows of a synchronous run are never stale",
                         .expected = "a staleness of 1",
                         .got = std::to_string(worker.staleness[table]) + " for '" +
                                worker.tables[table].name + "'",
                         .fix = "set embedding.mode=hybrid, or embedding.staleness=1"});
}

RecommenderInputs inputs_of(const RecommenderFields& recipe) {
  const TabularOptions data = complete(recipe.data);
  RecommenderInputs inputs{.numeric = static_cast<std::int64_t>(data.numeric.size())};
  for (const CategoricalOptions& feature : data.categorical)
    inputs.row_widths.push_back(feature.width *
                                (feature.pool == Pooling::kSequence ? feature.last : 1));
  return inputs;
}

WorkerOptions worker_options(const RecommenderFields& recipe, int threads) {
  WorkerOptions worker{.threads = threads};
  std::unordered_map<std::string, std::size_t> places;  // of tables, by name
  for (const CategoricalOptions& feature : complete(recipe.data).categorical) {
    const RowOptions rows = row_options(recipe.embedding.rows, feature.embedding);
    const std::string& name = rows.table.empty() ? feature.name : rows.table;
    const auto [place, is_new] = places.emplace(name, worker.tables.size());
    if (!is_new && worker.tables[place->second].width != feature.width) {
      throw UserError(
          {.operation = "task.recipe",
           .where = feature.embedding.where(),
           .what = "features of one table have rows of different widths",
           .expected = std::to_string(worker.tables[place->second].width) + ", as the first one",
           .got = "'" + feature.name + "' with " + std::to_string(feature.width),
           .fix = "set its width to " + std::to_string(worker.tables[place->second].width)});
    }
    worker.features.push_back(
        {.table = static_cast<int>(place->second),
         .pooling = feature.pool,
         .length = static_cast<int>(std::max<std::int64_t>(1, feature.last))});
    if (!is_new) continue;
    worker.tables.push_back(feature_spec(name, feature.width, rows));
    worker.staleness.push_back(static_cast<int>(rows.staleness));
  }
  return worker;
}

std::string network_fields(const RecommenderFields& recipe) {
  const RecommenderInputs inputs = inputs_of(recipe);
  const RecommenderOptions model = completed(recipe.model, inputs);
  nlohmann::ordered_json fields = {{"kind", name_of(model.kind)},
                                   {"bottom", model.bottom},
                                   {"top", model.top},
                                   {"interaction", name_of(model.interaction)},
                                   {"cross_layers", model.cross_layers},
                                   {"rank", model.rank},
                                   {"batch_norm", name_of(model.batch_norm)},
                                   {"activation", name_of(model.activation)},
                                   {"wide", model.wide},
                                   {"numeric", inputs.numeric},
                                   {"rows", inputs.row_widths}};
  // operator[] of an ordered object would compare all names before it adds one.
  nlohmann::ordered_json::object_t tables;
  for (const FeatureSpec& table : worker_options(recipe).tables)
    tables.emplace_back(table.name,
                        nlohmann::ordered_json{{"width", table.width},
                                               {"optimizer", name_of(table.optimizer.kind)},
                                               {"precision", name_of(table.precision)}});
  if (!tables.empty()) fields["tables"] = std::move(tables);
  return json_text(fields);
}

// Next to the checkpoints of the folder, or of the folder that contains this checkpoint.
std::string saved_rows_folder(const RecommenderFields& fields, const std::string& checkpoint) {
  if (!fields.embedding.folder.empty()) return fields.embedding.folder;
  namespace fs = std::filesystem;
  const fs::path path = fs::path(checkpoint).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  return (step_of_folder_name(folder.filename()) ? folder.parent_path() : folder) / "rows";
}

}  // namespace strata
