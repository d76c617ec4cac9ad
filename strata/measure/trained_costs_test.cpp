#include "strata/measure/trained_costs.h"

#include <gtest/gtest.h>

#include "strata/plan/example_models_test.h"

namespace strata {
namespace {

Plan plan_of_two_layers() {
  const Dataflow dataflow = chain(2);
  return make_plan(
      {.dataflow = dataflow,
       .costs = equal_costs(dataflow,
                            {.forward_seconds = 1, .backward_seconds = 2, .update_seconds = 0.5})});
}

TEST(TrainedCosts, AreMeasuredWhereTheyCanBe) {
  LayerSeconds measured;
  measured[LayerPart::kForward] = {3, 0, 20};
  measured[LayerPart::kUpdate] = {0.25, 0, 20};
  const Plan plan = plan_of_two_layers();
  const CostTable costs = with_trained_seconds(plan, {LayerSeconds(), measured});
  EXPECT_DOUBLE_EQ(costs.layers[0].forward_seconds, 1);  // not measured
  EXPECT_DOUBLE_EQ(costs.layers[1].forward_seconds, 3);
  EXPECT_DOUBLE_EQ(costs.layers[1].backward_seconds, 2);  // not measured
  EXPECT_DOUBLE_EQ(costs.layers[1].update_seconds, 0.25);
}

// Such an update waits for other ranks, so what was measured is that of AdamW before the freeze
// step.
TEST(TrainedCosts, OfUpdatesBySignsArePlanned) {
  LayerSeconds measured;
  measured[LayerPart::kForward] = {3, 0, 20};
  measured[LayerPart::kUpdate] = {0.25, 0, 20};
  Plan plan = plan_of_two_layers();
  plan.mesh.sends_signs = true;
  const LayerCost cost = with_trained_seconds(plan, {measured}).layers[0];
  EXPECT_DOUBLE_EQ(cost.forward_seconds, 3);
  EXPECT_DOUBLE_EQ(cost.update_seconds, 0.5);
}

}  // namespace
}  // namespace strata
