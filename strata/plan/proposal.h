/// Finds the best plan for exactly the settings asked for, fitting or not, and says of one that does
/// not fit what the nearest settings are that do.
#pragma once

#include "strata/plan/planner.h"

namespace strata {

/// Returns the fastest plan that fits, or else the one of the smallest peak. Its schedule isn't
/// validated yet.
Plan propose(const PlanRequest& request);

bool fits(const Plan& plan);

/// The first plan that fits which propose() would come across, and not the fastest: much sooner. Where none fits,
/// as propose().
Plan first_that_fits(const PlanRequest& request);

/// A plan that fits, with what becomes of each layer's activations chosen (activation_choice.h), where
/// the request leaves that open and a budget makes layers run again.
Plan with_activations_chosen(const PlanRequest& request, Plan plan);

/// What a proposal chooses beside the settings.
struct Choices {
  Partition partition;
  LayerSet recompute = {};
  ReduceMode reduce = ReduceMode::kOnce;
  TierPlacement tiers = {};
};

/// The plan that these choices make.
Plan evaluate(const PlanRequest& request, const Choices& choices);

/// Tries, in this order: recompute `auto`, schedule 1f1b, both, all that may live on the host there,
/// schedule vertical, with replicas higher stages of ZeRO, smaller micro-batches, a disk, more ranks; if none fits,
/// the smallest budget for the best of them on the same ranks. `plan` is the best that the request itself gives.
[[noreturn]] void refuse(const PlanRequest& request, const Plan& plan);

}  // namespace strata
