#include "strata/schedule/dataflow.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/example_models_test.h"

namespace strata {
namespace {

TEST(Partition, FindsTheStageOfALayerAndRefusesLayersOutside) {
  const Partition partition{{0, 1, 4, 6}};
  const int expected[] = {0, 1, 1, 1, 2, 2};
  for (int layer = 0; layer < 6; ++layer) EXPECT_EQ(partition.stage_of(layer), expected[layer]);
  EXPECT_EQ(partition.layers(1), (LayerRange{1, 4}));
  EXPECT_THROW(partition.stage_of(6), InternalError);
  EXPECT_THROW(partition.stage_of(-1), InternalError);
}

TEST(Placement, KnowsRankStageInputsAndOutputsOfEveryLayer) {
  const Dataflow dataflow = chain_with_skip_and_tie(4);
  const LayerPlacement placement(dataflow, {{0, 1, 3, 4}}, {0, 1, 0});
  EXPECT_EQ(placement.stage, (std::vector<int>{0, 1, 1, 2}));
  EXPECT_EQ(placement.rank, (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(placement.outputs[0], (std::vector<int>{0, 4}));
  EXPECT_EQ(placement.inputs[3], (std::vector<int>{2, 4}));
}

TEST(Placement, RefusesAPartitionThatDoesNotFitTheDataflow) {
  const Dataflow dataflow = chain(4);
  EXPECT_THROW(LayerPlacement(dataflow, {{0, 2, 3}}, {0, 1}), InternalError);
  EXPECT_THROW(LayerPlacement(dataflow, {{0, 2, 2, 4}}, {0, 1, 2}), InternalError);
  EXPECT_THROW(LayerPlacement(dataflow, {{0, 2, 4}}, {0}), InternalError);
}

}  // namespace
}  // namespace strata
