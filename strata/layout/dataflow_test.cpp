#include "strata/layout/dataflow.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/layout/dataflow.h"
#include "strata/layout/example_models_test.h"

namespace strata {
namespace {

TEST(Partition, StageOfFindsLayersAndRejectsLayersOutside) {
  const Partition partition{{0, 1, 4, 6}};
  const int expected[] = {0, 1, 1, 1, 2, 2};
  for (int layer = 0; layer < 6; ++layer) EXPECT_EQ(partition.stage_of(layer), expected[layer]);
  EXPECT_EQ(partition.layers(1), (LayerRange{1, 4}));
  EXPECT_THROW(partition.stage_of(6), InternalError);
  EXPECT_THROW(partition.stage_of(-1), InternalError);
}

TEST(Placement, ListsRankStageInputsAndOutputsOfEveryLayer) {
  const Dataflow dataflow = chain_with_skip_and_tie(4);
  const LayerPlacement placement(dataflow, {{0, 1, 3, 4}}, {0, 1, 0});
  EXPECT_EQ(placement.stage, (std::vector<int>{0, 1, 1, 2}));
  EXPECT_EQ(placement.rank, (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(placement.outputs[0], (std::vector<int>{0, 4}));
  EXPECT_EQ(placement.inputs[3], (std::vector<int>{2, 4}));
}

TEST(Placement, RejectsPartitionThatDoesNotFitDataflow) {
  const Dataflow dataflow = chain(4);
  EXPECT_THROW(LayerPlacement(dataflow, {{0, 2, 3}}, {0, 1}), InternalError);
  EXPECT_THROW(LayerPlacement(dataflow, {{0, 2, 2, 4}}, {0, 1, 2}), InternalError);
  EXPECT_THROW(LayerPlacement(dataflow, {{0, 2, 4}}, {0}), InternalError);
}

TEST(LayerSet, HasReflectsAddAndRemove) {
  LayerSet set{4, 1};
  EXPECT_EQ(set.layers(), (std::vector<int>{1, 4}));
  EXPECT_TRUE(set.has(1) && set.has(4));
  EXPECT_FALSE(set.has(0) || set.has(5) || set.has(1000));
  set.remove(4);
  set.remove(7);
  EXPECT_EQ(set, LayerSet{1});
  EXPECT_EQ(set.size(), 1);
  set.remove(1);
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(LayerSet::all(3), (LayerSet{0, 1, 2}));
  EXPECT_EQ(LayerSet(std::vector<int>{2, 0}), (LayerSet{0, 2}));
}

}  // namespace
}  // namespace strata
