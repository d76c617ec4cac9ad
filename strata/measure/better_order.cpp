#include "strata/measure/better_order.h"

#include <utility>

#include "strata/measure/trained_costs.h"
#include "strata/plan/search/order_search.h"
#include "strata/schedule/passes.h"

namespace strata {

namespace {
constexpr double kWorthIt = 0.99;
}  // namespace

std::optional<BetterOrder> better_order(const Plan& plan,
                                        const std::vector<LayerSeconds>& trained) {
  const StepDecisions& decisions = plan.decisions();
  const Dataflow& dataflow = plan.steps.dataflow();
  const CostTable costs = with_trained_seconds(plan, trained);
  const OrderRequest request{.dataflow = dataflow,
                             .costs = costs,
                             .partition = decisions.partition,
                             .recompute = decisions.recompute,
                             .micro_batches = plan.micro_batches};
  std::vector<StageCosts> stages = stage_costs(request);
  for (std::size_t rank = 0; rank < stages.size(); ++rank)
    stages[rank].most = most_held(decisions.order->programs[rank], stages[rank]);
  SearchedSchedule found =
      search_zero_bubble(stages, plan.micro_batches, longest_transfer(request));
  const auto simulated = [&](const Schedule& order) {
    const Schedule lowered = lower(order, dataflow, decisions.partition,
                                   {.recompute = decisions.recompute,
                                    .shards = plan.steps.shards(),
                                    .tiers = decisions.tiers});
    return simulate(lowered, dataflow, decisions.partition, costs,
                    collective_seconds(plan.costs, plan.steps.shards(), plan.mesh),
                    tier_seconds(plan, costs));
  };
  const double before = simulated(*decisions.order).step_seconds;
  Simulation after = simulated(found.schedule);
  if (after.step_seconds > kWorthIt * before) return std::nullopt;
  return BetterOrder{std::move(found.schedule), std::move(after), before};
}

}  // namespace strata
