#include "strata/plan/search/rank_balance.h"

#include <gtest/gtest.h>

#include "strata/plan/example_models_test.h"

namespace strata {
namespace {

// Layers of 1 s forward and 2 s backward.
CostTable seconds_of_layers(const Dataflow& dataflow) {
  return equal_costs(dataflow, {.forward_seconds = 1, .backward_seconds = 2}, {});
}

TEST(RankBalance, GivesRanksOfAVEqualWork) {
  const Dataflow dataflow = chain(6);
  const CostTable costs = seconds_of_layers(dataflow);
  const PartitionRequest v{.ranks = 2, .virtual_stages = 2, .rank_of_stage = {0, 1, 1, 0}};
  const Partition even = with_even_ranks(dataflow, costs, v, {{0, 1, 3, 5, 6}});
  const auto layers_on = [&](int rank) {
    int layers = 0;
    for (int stage = 0; stage < 4; ++stage)
      if (v.rank_of_stage[stage] == rank) layers += even.layers(stage).size();
    return layers;
  };
  EXPECT_EQ(layers_on(0), 3);
  EXPECT_EQ(layers_on(1), 3);
}

TEST(RankBalance, LeavesAnEvenCutAlone) {
  const Dataflow dataflow = chain(8);
  const CostTable costs = seconds_of_layers(dataflow);
  const Partition even{{0, 2, 4, 6, 8}};
  EXPECT_EQ(with_even_ranks(dataflow, costs, {.ranks = 2, .virtual_stages = 2}, even), even);
}

TEST(RankBalance, LeavesEveryStageALayer) {
  const Dataflow dataflow = chain(4);
  CostTable costs = seconds_of_layers(dataflow);
  costs.layers[0].forward_seconds = 100;
  const Partition only{{0, 1, 2, 3, 4}};
  EXPECT_EQ(with_even_ranks(dataflow, costs, {.ranks = 2, .virtual_stages = 2}, only), only);
}

}  // namespace
}  // namespace strata
