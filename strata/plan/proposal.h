/// Finds the best plan for exactly the settings asked for, fitting or not.
#pragma once

#include "strata/plan/planner.h"

namespace strata {

/// Returns the fastest plan that fits, or else the one of the smallest peak. Its schedule isn't
/// validated yet.
Plan propose(const PlanRequest& request);

bool fits(const Plan& plan);

/// What a proposal chooses beside the settings.
struct Choices {
  Partition partition;
  LayerSet recompute = {};
  ReduceMode reduce = ReduceMode::kOnce;
};

/// The plan that these choices make.
Plan evaluate(const PlanRequest& request, const Choices& choices);

}  // namespace strata
