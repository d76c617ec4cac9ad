#include "strata/layout/zero.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/layout/example_models_test.h"

namespace strata {
namespace {

LayerShards middle_layer(const ZeroPolicy& policy, int replicas = 4) {
  return shard_layout(policy, replicas, chain(3), LayerSet::all(3))[1];
}

TEST(Zero, EachStageShardsOneMoreKind) {
  for (int stage = 0; stage <= 3; ++stage) {
    const LayerShards layer = middle_layer({.stage = stage});
    EXPECT_EQ(layer.states, stage >= 1);
    EXPECT_EQ(layer.gradients, stage >= 2);
    EXPECT_EQ(layer.weights, stage >= 3);
    EXPECT_TRUE(layer.reduced);
    EXPECT_EQ(layer.gathers_weights(), stage == 1 || stage == 2);
  }
}

TEST(Zero, ReducesEachMicroBatchOnlyWithShardedGradients) {
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(middle_layer({.stage = stage, .reduce = ReduceMode::kEach}).reduced_each, stage >= 2);
    EXPECT_FALSE(middle_layer({.stage = stage, .reduce = ReduceMode::kOnce}).reduced_each);
    EXPECT_FALSE(middle_layer({.stage = stage}).reduced_each);
  }
}

TEST(Zero, ShardGroupDefaultsToAllReplicas) {
  EXPECT_EQ(ZeroPolicy{.stage = 0}.shards(8), 1);
  EXPECT_EQ(ZeroPolicy{.stage = 1}.shards(8), 8);
  EXPECT_EQ((ZeroPolicy{.stage = 1, .shard_ranks = 2}.shards(8)), 2);
  const LayerShards alone = middle_layer({.stage = 3, .shard_ranks = 1});
  EXPECT_FALSE(alone.states || alone.gradients || alone.weights);
  EXPECT_TRUE(alone.reduced);
}

TEST(Zero, SingleReplicaKeepsEverythingAndExchangesNothing) {
  const ShardLayout layout = shard_layout({.stage = 3}, 1, chain(3), LayerSet::all(3));
  EXPECT_TRUE(layout.layers.empty());
  EXPECT_FALSE(layout[1].reduced);
  // Ranks that have each processed a part of the sequence add their gradients.
  const ShardLayout parts = shard_layout({.stage = 3}, 1, chain(3), LayerSet::all(3), true);
  EXPECT_TRUE(parts[1].reduced);
  EXPECT_FALSE(parts[1].states);
}

TEST(Zero, TiedLayersShardStatesOnly) {
  const ShardLayout layout = shard_layout({.stage = 3, .reduce = ReduceMode::kEach}, 2,
                                          chain_with_skip_and_tie(4), LayerSet{0, 1, 3});
  for (const int layer : {0, 3}) {
    EXPECT_TRUE(layout[layer].states && layout[layer].reduced);
    EXPECT_FALSE(layout[layer].gradients || layout[layer].weights || layout[layer].reduced_each);
  }
  EXPECT_TRUE(layout[1].weights && layout[1].reduced_each);
  EXPECT_FALSE(layout[2].states || layout[2].reduced);  // has no weights
}

TEST(Zero, PartsLieInShardOfTheirReplica) {
  for (const int shards : {1, 2, 4}) {
    const LayerCuts cuts = cut_layer(20000, {.replicas = 4, .shards = shards});
    std::vector<FlatRange> parts = cuts.parts;
    for (int replica = 0; replica < 4; ++replica) {
      const FlatRange shard = cuts.shards[replica % shards];
      EXPECT_GE(parts[replica].begin, shard.begin);
      EXPECT_LE(parts[replica].end, shard.end);
    }
    std::sort(parts.begin(), parts.end(),
              [](FlatRange a, FlatRange b) { return a.begin < b.begin; });
    std::int64_t end = 0;
    for (const FlatRange part : parts) {
      EXPECT_EQ(part.begin, end);
      end = part.end;
    }
    EXPECT_EQ(end, 20000);
  }
}

}  // namespace
}  // namespace strata
