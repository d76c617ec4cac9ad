#include "strata/schedule/placement.h"

#include "strata/base/errors.h"

namespace strata::schedule {
namespace {

void check_layer(int layer, const Wiring& wiring) {
  STRATA_CHECK(layer >= 0 && layer < wiring.num_layers, "schedule.placement");
}

}  // namespace

std::vector<char> tied_layers(const Wiring& wiring) {
  std::vector<char> tied(wiring.num_layers);
  for (const Tie& tie : wiring.ties) {
    tied[tie.owner] = 1;
    for (const int user : tie.users) tied[user] = 1;
  }
  return tied;
}

Placement::Placement(const Wiring& wiring, const Partition& partition,
                     const std::vector<int>& rank_of_stage)
    : inputs(wiring.num_layers), outputs(wiring.num_layers) {
  STRATA_CHECK_EQ(partition.num_stages(), static_cast<int>(rank_of_stage.size()),
                  "schedule.placement");
  for (int s = 0; s < partition.num_stages(); ++s) {
    const LayerRange layers = partition.layers(s);
    STRATA_CHECK_EQ(layers.begin, static_cast<int>(stage.size()), "schedule.placement");
    STRATA_CHECK(layers.size() > 0, "schedule.placement");
    stage.insert(stage.end(), layers.size(), s);
    rank.insert(rank.end(), layers.size(), rank_of_stage[s]);
  }
  STRATA_CHECK_EQ(static_cast<int>(stage.size()), wiring.num_layers, "schedule.placement");

  for (std::size_t v = 0; v < wiring.values.size(); ++v) {
    const Value& value = wiring.values[v];
    check_layer(value.producer, wiring);
    outputs[value.producer].push_back(static_cast<int>(v));
    for (const int consumer : value.consumers) {
      check_layer(consumer, wiring);
      STRATA_CHECK(consumer > value.producer, "schedule.placement");
      inputs[consumer].push_back(static_cast<int>(v));
    }
  }
  for (const Tie& tie : wiring.ties) {
    check_layer(tie.owner, wiring);
    for (const int user : tie.users) check_layer(user, wiring);
  }
}

}  // namespace strata::schedule
