// What is decided here by measured seconds is what ranks run, so all processes have to follow one of them:
// decisions travel as a line of JSON, and each process makes the same programs of them.
#include "strata/plan/planner.h"

#include <nlohmann/json.hpp>

#include "strata/plan/proposal.h"

namespace strata {
namespace {

using nlohmann::json;

json placement_json(const TierPlacement& placement) {
  const LayerTiers& tiers = placement.tiers;
  return {{"weights", tiers.weights},
          {"gradients", tiers.gradients},
          {"states", tiers.states},
          {"activations", tiers.activations},
          {"window", placement.window},
          {"gradient_buffers", placement.gradient_buffers},
          {"offloaded", placement.offloaded.layers()}};
}

TierPlacement placement_of(const json& text) {
  return {.tiers = {text.at("weights").get<Tier>(), text.at("gradients").get<Tier>(),
                    text.at("states").get<Tier>(), text.at("activations").get<Tier>()},
          .window = text.at("window").get<int>(),
          .gradient_buffers = text.at("gradient_buffers").get<int>(),
          .offloaded = LayerSet(text.value("offloaded", std::vector<int>()))};
}

// Checked here, so that whoever runs the plan finds its programs checked.
Plan completed(Plan plan, const PlanRequest& request) {
  plan.communication = communication_of(plan.steps, plan.micro_batches, costs_for(request),
                                        plan.mesh, lane_seconds(plan, plan.costs));
  if (request.schedule == ScheduleKind::kForward) {
    plan.steps.evaluation(plan.micro_batches);
  } else {
    plan.steps.training(plan.micro_batches);
  }
  return plan;
}

}  // namespace

LaneSeconds lane_seconds(const Plan& plan, const CostTable& costs) {
  return lane_seconds(costs, plan.steps.shards(), plan.decisions().tiers, plan.rates);
}

Plan make_plan(const PlanRequest& request) {
  Plan plan = propose(request);
  if (!fits(plan)) refuse(request, plan);
  return completed(with_activations_chosen(request, std::move(plan)), request);
}

std::string decisions_text(const Plan& plan) {
  const StepDecisions& decisions = plan.decisions();
  return json{{"bounds", decisions.partition.bounds},
              {"recompute", decisions.recompute.layers()},
              {"reduce_each", decisions.zero.reduce == ReduceMode::kEach},
              {"tiers", placement_json(plan.placement)},
              {"reduce_reason", plan.reduce_reason}}
      .dump();
}

Plan follow_plan(const PlanRequest& request, const std::string& decided) {
  const json text = json::parse(decided);
  Plan plan = evaluate(
      request,
      {.partition = {text.at("bounds").get<std::vector<int>>()},
       .recompute = LayerSet(text.at("recompute").get<std::vector<int>>()),
       .reduce = text.at("reduce_each").get<bool>() ? ReduceMode::kEach : ReduceMode::kOnce,
       .tiers = placement_of(text.at("tiers"))});
  plan.reduce_reason = text.at("reduce_reason").get<std::string>();
  return completed(std::move(plan), request);
}

}  // namespace strata
