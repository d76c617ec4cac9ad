#include "strata/plan/plan_text.h"

#include <algorithm>
#include <vector>

#include "strata/base/units.h"
#include "strata/plan/byte_table.h"
#include "strata/plan/mesh_text.h"
#include "strata/plan/text_table.h"
#include "strata/schedule/grid.h"

namespace strata {
namespace {

constexpr int kMostNames = 4;  // of recomputed layers, then "and 8 more"

std::string counted(std::size_t count, const std::string& noun, const std::string& plural = "s") {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : plural);
}

std::string headline(const Plan& plan) {
  std::string text = std::string(name_of(plan.decisions().schedule)) + " · " + ranks_text(plan);
  if (plan.decisions().virtual_stages > 1) {
    text += " × " + counted(plan.decisions().virtual_stages, "stage");
  }
  return text + " · " + counted(plan.costs.layers.size(), "layer") + " · " +
         counted(plan.micro_batches, "micro-batch", "es") + " a step\n";
}

std::string names_of(const Plan& plan, LayerRange layers) {
  const std::string& first = plan.costs.layers[layers.begin].name;
  if (layers.size() == 1) return first;
  return first + " .. " + plan.costs.layers[layers.end - 1].name;
}

// Times are those of one full micro-batch; a recompute belongs to its backward.
std::string stage_table(const Plan& plan) {
  TextTable table("rrrlrrr");
  table.add_row({"stage", "rank", "layers", "", "weights", "forward", "backward"});
  const Partition& partition = plan.decisions().partition;
  for (int stage = 0; stage < partition.num_stages(); ++stage) {
    const LayerRange layers = partition.layers(stage);
    LayerCost sum;
    for (int l = layers.begin; l < layers.end; ++l) {
      const LayerCost& cost = plan.costs.layers[l];
      sum.weight_bytes += cost.weight_bytes;
      sum.forward_seconds += cost.forward_seconds;
      sum.backward_seconds += cost.backward_seconds;
      if (plan.decisions().recompute.has(l)) sum.backward_seconds += cost.forward_seconds;
    }
    table.add_row({std::to_string(stage), std::to_string(plan.schedule().rank_of_stage[stage]),
                   std::to_string(layers.size()), names_of(plan, layers),
                   format_bytes(sum.weight_bytes), format_seconds(sum.forward_seconds),
                   format_seconds(sum.backward_seconds)});
  }
  return table.text();
}

std::string cut_grid(const Plan& plan, int columns) {
  const auto digits = [](int count) {
    return static_cast<int>(std::to_string(std::max(count - 1, 0)).size());
  };
  int cell = 2 + digits(plan.micro_batches);
  if (plan.decisions().virtual_stages > 1) cell += 1 + digits(plan.decisions().virtual_stages);
  const int label = 6 + digits(plan.decisions().mesh.pp);
  return draw_grid(plan.schedule(), {.max_columns = std::max(1, (columns - label) / cell)});
}

std::string recompute_line(const Plan& plan) {
  const RecomputeMode mode = plan.memory.recompute;
  std::string text = std::string("recompute  ") + name_of(mode);
  std::vector<std::string> names;
  for (const int l : plan.decisions().recompute.layers())
    names.push_back(plan.costs.layers[l].name);
  if (names.empty()) return text + (mode == RecomputeMode::kAuto ? ": no layer needs it\n" : "\n");
  text += ": " + std::to_string(names.size()) + " of " +
          counted(plan.costs.layers.size(), "layer") + " (";
  const int shown = std::min<int>(kMostNames, static_cast<int>(names.size()));
  for (int i = 0; i < shown; ++i) text += (i ? ", " : "") + names[i];
  if (const int more = static_cast<int>(names.size()) - shown; more > 0) {
    text += " and " + std::to_string(more) + " more";
  }
  return text + ")\n";
}

}  // namespace

std::string plan_text(const Plan& plan, int columns) {
  const Simulation& simulation = plan.simulation;
  std::string text = headline(plan) + "\n" + stage_table(plan) + "\n" + cut_grid(plan, columns) +
                     "\n" + byte_table(plan.ledger, plan.memory.device.count) + "\n";
  text += mesh_text(plan) + recompute_line(plan);
  text += "memory     " + format_bytes(peak_bytes(plan.ledger)) + " on the fullest rank";
  if (plan.memory.device.count > 0) text += ", budget " + format_bytes(plan.memory.device.count);
  text += "\npredicted  " + format_seconds(simulation.step_seconds) + " a step, bubble " +
          format_double(100 * simulation.bubble, 1) + " %\n";
  return text;
}

}  // namespace strata
