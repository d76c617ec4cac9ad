/// Finds the best plan for exactly the requested settings, whether it fits or not. If it does not
/// fit, reports the nearest settings that do.
#pragma once

#include "strata/plan/search/planner.h"
#include "strata/plan/search/recompute_choice.h"

namespace strata {

/// Returns the fastest plan that fits, or else the one with the smallest peak. Its schedule is not
/// validated yet.
Plan propose(const PlanRequest& request);

bool fits(const Plan& plan);

/// Returns the first plan that fits in the order of propose(), which is much sooner than the
/// fastest. If none fits, the same as propose().
Plan first_that_fits(const PlanRequest& request);

/// Chooses what happens to each layer's activations (activation_choice.h) in a plan that fits, if
/// the request leaves that open and a budget requires recomputes.
Plan with_activations_chosen(const PlanRequest& request, Plan plan);

/// What a proposal chooses in addition to the settings.
struct Choices {
  Partition partition;
  RecomputeChoice recompute = {};
  ReduceMode reduce = ReduceMode::kOnce;
  TierPlacement tiers = {};
  /// Of whole stages, for a schedule that is searched; null: the proposal searches it.
  std::shared_ptr<const Schedule> order = nullptr;
};

/// Returns the plan with these choices.
Plan evaluate(const PlanRequest& request, const Choices& choices);

/// Tries, in this order: recompute `auto`, schedule 1f1b, both, everything allowed on the host,
/// schedule vertical, with replicas higher stages of ZeRO, smaller micro-batches, a disk, more
/// ranks; if none fits, the smallest budget for the best of them on the same ranks. `plan` is the
/// best plan of the request itself.
[[noreturn]] void refuse(const PlanRequest& request, const Plan& plan);

}  // namespace strata
