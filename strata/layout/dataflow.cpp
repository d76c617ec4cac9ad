#include "strata/layout/dataflow.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {

int Partition::stage_of(int layer) const {
  STRATA_CHECK(!bounds.empty() && layer >= bounds.front() && layer < bounds.back(),
               "schedule.stage_of");
  return static_cast<int>(std::upper_bound(bounds.begin(), bounds.end(), layer) - bounds.begin()) -
         1;
}

namespace {

void check_layer(int layer, const Dataflow& dataflow) {
  STRATA_CHECK(layer >= 0 && layer < dataflow.num_layers, "schedule.placement");
}

}  // namespace

LayerSet tied_layers(const Dataflow& dataflow) {
  LayerSet tied;
  for (const Tie& tie : dataflow.ties) {
    tied.add(tie.owner);
    for (const int user : tie.users) tied.add(user);
  }
  return tied;
}

LayerPlacement::LayerPlacement(const Dataflow& dataflow, const Partition& partition,
                               const std::vector<int>& rank_of_stage)
    : inputs(dataflow.num_layers), outputs(dataflow.num_layers) {
  STRATA_CHECK_EQ(partition.num_stages(), static_cast<int>(rank_of_stage.size()),
                  "schedule.placement");
  for (int s = 0; s < partition.num_stages(); ++s) {
    const LayerRange layers = partition.layers(s);
    STRATA_CHECK_EQ(layers.begin, static_cast<int>(stage.size()), "schedule.placement");
    STRATA_CHECK(layers.size() > 0, "schedule.placement");
    stage.insert(stage.end(), layers.size(), s);
    rank.insert(rank.end(), layers.size(), rank_of_stage[s]);
  }
  STRATA_CHECK_EQ(static_cast<int>(stage.size()), dataflow.num_layers, "schedule.placement");

  for (std::size_t v = 0; v < dataflow.values.size(); ++v) {
    const Value& value = dataflow.values[v];
    check_layer(value.producer, dataflow);
    outputs[value.producer].push_back(static_cast<int>(v));
    for (const int consumer : value.consumers) {
      check_layer(consumer, dataflow);
      STRATA_CHECK(consumer > value.producer, "schedule.placement");
      inputs[consumer].push_back(static_cast<int>(v));
    }
  }
  for (const Tie& tie : dataflow.ties) {
    check_layer(tie.owner, dataflow);
    for (const int user : tie.users) check_layer(user, dataflow);
  }
}

}  // namespace strata
