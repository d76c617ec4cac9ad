// No other code decides what is sharded. A tied layer is used by other ranks, which read its whole
// weights and add to its whole gradients. Layers without weights exchange nothing.
#include "strata/layout/zero.h"

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"

namespace strata {

const char* name_of(ReduceMode mode) {
  using enum ReduceMode;
  static constexpr EnumNames<ReduceMode> kNames{{kAuto, "auto"}, {kOnce, "once"}, {kEach, "each"}};
  return kNames[mode];
}

int most_in_group(int replicas, int unit) {
  for (int most = replicas / 2; most > 1; --most)
    if (replicas % most == 0 && most % unit == 0) return most;
  return 1;
}

ShardLayout shard_layout(const ZeroPolicy& policy, int replicas, const Dataflow& dataflow,
                         const LayerSet& with_weights, bool partial_gradients) {
  ShardLayout layout{
      .replicas = replicas, .shards = policy.shards(replicas), .traffic = policy.traffic};
  if (replicas == 1 && !partial_gradients) return layout;
  const LayerSet tied = tied_layers(dataflow);
  for (int layer = 0; layer < dataflow.num_layers; ++layer) {
    const bool sharded = layout.shards > 1 && with_weights.has(layer);
    const bool divided = sharded && !tied.has(layer);
    const bool gradients = divided && policy.stage >= 2;
    const bool weights = divided && policy.stage >= 3;
    layout.layers.push_back(
        {.states = sharded,
         .gradients = gradients,
         .weights = weights,
         .reduced = with_weights.has(layer),
         .reduced_each = gradients && policy.reduce == ReduceMode::kEach,
         .coded_weights = weights && policy.traffic.weights != TrafficFormat::kFull});
  }
  return layout;
}

LayerCuts cut_layer(std::int64_t numel, const ShardLayout& layout) {
  STRATA_CHECK_EQ(layout.replicas % layout.shards, 0, "schedule.cut_layer");
  const int groups = layout.replicas / layout.shards;
  LayerCuts cuts{.shards = cut({0, numel}, layout.shards), .parts = {}};
  for (int replica = 0; replica < layout.replicas; ++replica) {
    const FlatRange shard = cuts.shards[replica % layout.shards];
    cuts.parts.push_back(cut(shard, groups)[replica / layout.shards]);
  }
  return cuts;
}

}  // namespace strata
