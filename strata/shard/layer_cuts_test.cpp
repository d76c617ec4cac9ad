#include "strata/shard/layer_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace strata {
namespace {

TEST(Partition, CutsCoverEachElementOnceAtWholeBlocks) {
  for (const std::int64_t numel : {0, 16, 1024, 1040, 5000, 100000}) {
    for (const int parts : {1, 2, 3, 8}) {
      std::int64_t end = 0;
      for (const FlatRange range : cut({0, numel}, parts)) {
        EXPECT_EQ(range.begin, end);
        EXPECT_TRUE(range.begin % kFlatBlock == 0 || range.begin == numel);
        end = range.end;
      }
      EXPECT_EQ(end, numel);
    }
  }
}

TEST(Partition, PartsLieInTheShardOfTheirReplica) {
  for (const int shards : {1, 2, 4}) {
    const LayerCuts cuts = cut_layer(20000, 4, shards);
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
