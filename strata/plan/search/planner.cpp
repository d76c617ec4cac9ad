// Decisions that depend on measured seconds must be the same in all processes. One process decides
// and sends its decisions as a line of JSON; every process builds the same programs from it.
#include "strata/plan/search/planner.h"

#include <nlohmann/json.hpp>

#include "strata/base/enum_names.h"
#include "strata/plan/search/proposal.h"
#include "strata/schedule/order_csv.h"

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

// What the text says, unless the run resumes in another mode, not `auto`, which decides then. Texts
// of earlier versions name neither mode nor levels.
RecomputeChoice recompute_of(const json& text, const PlanRequest& request) {
  const RecomputeMode mode = request.memory.recompute;
  const Recompute base = level_of(mode);
  if (mode != RecomputeMode::kAuto && text.value("mode", name_of(mode)) != name_of(mode))
    return {
        .whole = mode == RecomputeMode::kFull ? recompute_all(request.mode_costs()) : LayerSet{},
        .levels = base};
  const auto level_named = [&](const std::string& name) {
    const auto level = value_named<Recompute>(name);
    return level && request.costs.has(*level) ? *level : base;
  };
  RecomputeChoice choice{LayerSet(text.at("recompute").get<std::vector<int>>()),
                         level_named(text.value("level", name_of(base)))};
  const json levels = text.value("levels", json::object());
  for (const auto& [layer, name] : levels.items())
    choice.levels.set(std::stoi(layer), level_named(name.get<std::string>()));
  return choice;
}

// Checks the programs here, so that the caller who runs the plan gets checked ones.
Plan completed(Plan plan, const PlanRequest& request) {
  plan.communication =
      communication_of(plan.steps, plan.micro_batches, request.costs.at(plan.decisions().levels),
                       request.mesh, tier_seconds(plan, plan.costs), plan.recorded);
  if (request.schedule == ScheduleKind::kForward) {
    plan.steps.evaluation(plan.micro_batches);
  } else {
    plan.steps.training(plan.micro_batches);
  }
  return plan;
}

}  // namespace

StepAmount step_amount(const Plan& plan) {
  StepAmount amount;
  for (int m = 0; m < plan.micro_batches; ++m) amount.count += plan.costs.scale(m);
  const std::int64_t micro_batch = plan.decisions().micro_batch;
  if (micro_batch <= 0) return amount;
  const bool tokens = plan.sample_tokens > 0;
  amount.count *= static_cast<double>(micro_batch * (tokens ? plan.sample_tokens : 1)) *
                  static_cast<double>(plan.decisions().mesh[Axis::kData]);
  amount.unit = tokens ? "tokens" : "samples";
  return amount;
}

int devices_of(const Plan& plan) {
  const SharedDevices& shared = plan.costs.devices;
  return shared.empty() ? plan.decisions().mesh.size() : static_cast<int>(shared.ranks_on.size());
}

double flops_utilisation(const Plan& plan) {
  const double peak = plan.machine.device.peak, seconds = plan.simulation.step_seconds;
  if (peak <= 0 || seconds <= 0 || plan.costs.weight_element_bytes != 2) return 0;
  double flops = 0, micro_batches = 0;
  for (const LayerCost& layer : plan.costs.layers) flops += 3 * layer.forward_flops;
  for (int m = 0; m < plan.micro_batches; ++m) micro_batches += plan.costs.scale(m);
  // Costs are those of one tensor-parallel rank and one replica.
  const int pipelines = plan.decisions().mesh.stage_size();
  return flops * micro_batches * pipelines / (peak * devices_of(plan) * seconds);
}

TierSeconds tier_seconds(const Plan& plan, const CostTable& costs) {
  return tier_seconds(costs, plan.steps.shards(), plan.decisions().tiers, plan.rates);
}

Plan make_plan(const PlanRequest& request) {
  Plan plan = propose(request);
  if (!fits(plan)) refuse(request, plan);
  plan = with_activations_chosen(request, std::move(plan));
  return completed(std::move(plan), request);
}

std::string decisions_text(const Plan& plan) {
  const StepDecisions& decisions = plan.decisions();
  json text = {{"bounds", decisions.partition.bounds},
               {"recompute", decisions.recompute.layers()},
               {"reduce_each", decisions.zero.reduce == ReduceMode::kEach},
               {"tiers", placement_json(plan.placement)},
               {"reduce_reason", plan.reduce_reason}};
  text["mode"] = name_of(plan.memory.recompute);
  text["level"] = name_of(decisions.levels.base());
  for (const int layer : decisions.levels.other_layers())
    text["levels"][std::to_string(layer)] = name_of(decisions.levels.of(layer));
  if (!plan.recorded.empty()) text["recorded"] = true;
  if (decisions.order) text["order"] = order_csv(*decisions.order);
  return text.dump();
}

std::string decisions_to_resume(const std::string& decided, ScheduleKind schedule) {
  json text = json::parse(decided);
  if (schedule == ScheduleKind::kFile) text.erase("order");
  return text.dump();
}

Plan follow_plan(const PlanRequest& input, const std::string& decided) {
  const json text = json::parse(decided);
  PlanRequest request = input;
  if (!text.value("recorded", false)) request.recording = RecordingPlan::kNever;
  Choices choices{
      .partition = {text.at("bounds").get<std::vector<int>>()},
      .recompute = recompute_of(text, request),
      .reduce = text.at("reduce_each").get<bool>() ? ReduceMode::kEach : ReduceMode::kOnce,
      .tiers = placement_of(text.at("tiers"))};
  if (text.contains("order") && !traits_of(request.schedule).has_builder) {
    Schedule order = read_order(text.at("order").get<std::string>(), "order");
    order.kind = request.schedule;
    // A resumed run may have more micro-batches than the order that was searched for it.
    const bool is_read = request.schedule == ScheduleKind::kFile;
    if (is_read || order.num_micro_batches >= request.micro_batches) {
      choices.order = std::make_shared<const Schedule>(std::move(order));
      if (is_read) request.order = choices.order;
    }
  }
  Plan plan = evaluate(request, choices);
  // In another mode the plan may need more bytes than the one that it follows.
  if (text.value("mode", name_of(request.memory.recompute)) != name_of(request.memory.recompute) &&
      !fits(plan))
    refuse(request, plan);
  plan.reduce_reason = text.at("reduce_reason").get<std::string>();
  return completed(std::move(plan), request);
}

}  // namespace strata
