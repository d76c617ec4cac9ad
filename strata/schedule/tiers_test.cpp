#include "strata/layout/tiers.h"

#include <gtest/gtest.h>

#include "strata/layout/example_models_test.h"
#include "strata/schedule/step_plan.h"

namespace strata {
namespace {

constexpr LayerTiers kAllAway{Tier::kHost, Tier::kHost, Tier::kHost};
constexpr LayerTiers kStatesAway{Tier::kDevice, Tier::kHost, Tier::kHost};
constexpr LayerTiers kOnlyStatesAway{Tier::kDevice, Tier::kDevice, Tier::kHost};
constexpr LayerTiers kWeightsAndStatesAway{Tier::kHost, Tier::kDevice, Tier::kHost};

using All = std::vector<LayerTiers>;

// Layers 0 and 3 share a weight; layer 2 has none.
StepPlan plan_of(LayerTiers tiers, Partition partition, int replicas = 1, bool sequence = false) {
  Dataflow dataflow = chain(4);
  dataflow.ties.push_back({.name = "table", .owner = 0, .users = {3}});
  const int stages = partition.num_stages();
  return StepPlan(dataflow, {0, 1, 3},
                  {.mesh = {{Axis::kPipeline, stages}, {Axis::kData, replicas}},
                   .partition = std::move(partition),
                   .tiers = {.layers = All(4, tiers), .window = 3, .updates_at_once = true},
                   .sequence_parallel = sequence});
}

All tiers_of(const StepPlan& plan) { return plan.decisions().tiers.layers; }

TEST(TiersOnRanks, LayersWithoutWeightsMoveNothing) {
  const TierLayout alone = plan_of(kAllAway, {{0, 4}}).decisions().tiers;
  EXPECT_EQ(alone.layers, (All{kAllAway, kAllAway, {}, kAllAway}));
  EXPECT_EQ(alone.window, 3);
  EXPECT_TRUE(alone.updates_at_once);
  EXPECT_EQ(tiers_of(StepPlan(chain(2), {0, 1}, {})), All{});
}

TEST(TiersOnRanks, TiedWeightsAndGradientsOfOtherRanksStayOnDevice) {
  EXPECT_EQ(tiers_of(plan_of(kAllAway, {{0, 2, 4}})),
            (All{kOnlyStatesAway, kAllAway, {}, kOnlyStatesAway}));
}

TEST(TiersOnRanks, ReductionMovesGradientsToTheirUpdateExceptTiedOnes) {
  for (const LayerTiers requested : {kAllAway, kWeightsAndStatesAway})
    EXPECT_EQ(tiers_of(plan_of(requested, {{0, 4}}, 2)),
              (All{kWeightsAndStatesAway, kAllAway, {}, kWeightsAndStatesAway}));
  EXPECT_EQ(tiers_of(plan_of(kOnlyStatesAway, {{0, 4}}, 2)),
            (All{kOnlyStatesAway, kStatesAway, {}, kOnlyStatesAway}));
  EXPECT_EQ(tiers_of(plan_of({}, {{0, 4}}, 2)), All(4));
  // One replica whose ranks have each processed a part of the sequence.
  EXPECT_EQ(tiers_of(plan_of(kOnlyStatesAway, {{0, 4}}, 1, /*sequence=*/true)),
            (All{kOnlyStatesAway, kStatesAway, {}, kOnlyStatesAway}));
}

TEST(TiersOnRanks, SecondApplicationChangesNothing) {
  for (const int replicas : {1, 2}) {
    const StepPlan plan = plan_of(kAllAway, {{0, 2, 4}}, replicas);
    StepDecisions again = plan.decisions();
    EXPECT_EQ(tiers_of(StepPlan(plan.dataflow(), {0, 1, 3}, again)), tiers_of(plan));
  }
}

}  // namespace
}  // namespace strata
