#include "strata/optim/weight_blocks.h"

#include <gtest/gtest.h>

#include "strata/base/flat_range.h"

namespace strata {
namespace {

LayerLayout example_layout() {
  return make_layout({{.name = "bias", .shape = {7}},
                      {.name = "first", .shape = {10, 100}, .decay = true},
                      {.name = "tied", .shape = {5000}, .decay = true, .tie = "tie"},
                      {.name = "none", .shape = {0, 3}, .decay = true},
                      {.name = "second", .shape = {1500, 2}, .decay = true, .split = {.axis = 0}},
                      {.name = "third", .shape = {40}, .decay = true}},
                     {false, false, true, false, false, false});
}

// In elements: the first weight has [0, 1000), the second [1008, 4008), the third [4016, 4056).
TEST(WeightBlocks, AreThoseOfWeightsWithDecay) {
  const WeightBlocks blocks(example_layout());
  ASSERT_EQ(blocks.weights().size(), 4u);
  EXPECT_EQ(blocks.size(), 1 + 0 + 4 + 1);
  EXPECT_EQ(blocks.weights()[0].elements, (FlatRange{0, 1000}));
  EXPECT_EQ(blocks.weights()[0].blocks, (FlatRange{0, 1}));
  EXPECT_EQ(blocks.weights()[1].blocks.size(), 0);
  EXPECT_EQ(blocks.weights()[2].elements, (FlatRange{1008, 4008}));
  EXPECT_EQ(blocks.weights()[2].blocks, (FlatRange{1, 5}));
  EXPECT_EQ(blocks.weights()[2].index, 4u);
  EXPECT_TRUE(blocks.weights()[2].divided);
  EXPECT_EQ(blocks.weights()[3].blocks, (FlatRange{5, 6}));
  EXPECT_FALSE(blocks.weights()[3].divided);
}

TEST(WeightBlocks, OfShardsFollowEachOther) {
  const LayerLayout layout = example_layout();
  const WeightBlocks blocks(layout);
  EXPECT_EQ(blocks.in({0, 1024}), (FlatRange{0, 2}));
  EXPECT_EQ(blocks.in({3072, layout.trained_numel}), (FlatRange{4, 6}));
  for (const int parts : {1, 2, 3, 4, 7}) {
    std::int64_t next = 0;
    for (const FlatRange& shard : cut({0, layout.own_numel}, parts)) {
      const FlatRange of_shard = blocks.in(shard);
      EXPECT_EQ(of_shard.begin, next) << parts;
      next = of_shard.end;
    }
    EXPECT_EQ(next, blocks.size()) << parts;
  }
}

TEST(WeightBlocks, LayerWithoutMatricesHasNone) {
  const WeightBlocks blocks(make_layout({{.name = "gain", .shape = {7}}}, {false}));
  EXPECT_EQ(blocks.size(), 0);
  EXPECT_EQ(blocks.in({0, 16}), (FlatRange{0, 0}));
}

}  // namespace
}  // namespace strata
