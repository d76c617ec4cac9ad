#include "strata/schedule/zero.h"

namespace strata {

const char* name_of(ReduceMode mode) {
  constexpr const char* kNames[] = {"auto", "once", "each"};
  return kNames[static_cast<int>(mode)];
}

ShardLayout shard_layout(const ZeroPolicy& policy, int replicas, const Dataflow& dataflow,
                         const LayerSet& with_weights, bool partial_gradients) {
  ShardLayout layout{.replicas = replicas, .shards = policy.shards(replicas)};
  if (replicas == 1 && !partial_gradients) return layout;
  const LayerSet tied = tied_layers(dataflow);
  for (int layer = 0; layer < dataflow.num_layers; ++layer) {
    const bool sharded = layout.shards > 1 && with_weights.has(layer);
    const bool divided = sharded && !tied.has(layer);
    const bool gradients = divided && policy.stage >= 2;
    layout.layers.push_back({.states = sharded,
                             .gradients = gradients,
                             .weights = divided && policy.stage >= 3,
                             .reduced = with_weights.has(layer),
                             .reduced_each = gradients && policy.reduce == ReduceMode::kEach});
  }
  return layout;
}

}  // namespace strata
