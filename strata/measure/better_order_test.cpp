#include "strata/measure/better_order.h"

#include <gtest/gtest.h>

#include "strata/plan/example_models_test.h"
#include "strata/schedule/zero_bubble_search.h"

namespace strata {
namespace {

// Four stages of a layer each.
Plan plan_of(const LayerCost& layer) {
  const Dataflow dataflow = chain(4);
  PlanRequest request{.dataflow = dataflow,
                      .costs = equal_costs(dataflow, layer, {.bytes = 8}),
                      .micro_batches = 12,
                      .schedule = ScheduleKind::kZb};
  request.mesh.axes[Axis::kPipeline] = 4;
  return make_plan(request);
}

LayerSeconds seconds_of(double forward, double inputs, double weights) {
  LayerSeconds seconds;
  seconds[LayerPart::kForward] = {forward, 0, 20};
  seconds[LayerPart::kInputs] = {inputs, 0, 20};
  seconds[LayerPart::kWeights] = {weights, 0, 20};
  return seconds;
}

const LayerCost kEven{.forward_seconds = 1,
                      .backward_seconds = 2,
                      .weight_seconds = 1,
                      .saved_bytes = 100,
                      .kept_bytes = 90};

TEST(BetterOrder, IsNoneIfTheMeasuredTimesAreThePlannedOnes) {
  const Plan plan = plan_of(kEven);
  EXPECT_FALSE(better_order(plan, {}));
  EXPECT_FALSE(better_order(plan, std::vector(4, seconds_of(1, 1, 1))));
}

TEST(BetterOrder, IsFasterWithTheMeasuredTimesAndHoldsNoMore) {
  LayerCost wrong = kEven;
  wrong.weight_seconds = 0;
  const Plan plan = plan_of(wrong);
  const std::vector<LayerSeconds> trained(4, seconds_of(1, 1, 1));
  const std::optional<BetterOrder> better = better_order(plan, trained);
  ASSERT_TRUE(better);
  EXPECT_LT(better->simulation.step_seconds, 0.99 * better->before_seconds);
  const StageCosts costs{.forward = 1, .input = 1, .weight = 1, .saved = 100, .kept = 90};
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_LE(most_held(better->order.programs[rank], costs),
              most_held(plan.decisions().order->programs[rank], costs));
  plan.steps.reorder(better->order);
  EXPECT_EQ(plan.decisions().order->programs, better->order.programs);
  plan.steps.training(12);  // is legal
  EXPECT_FALSE(better_order(plan, trained));
}

}  // namespace
}  // namespace strata
