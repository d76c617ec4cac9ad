/// Finds the best plan for exactly the settings asked for, fitting or not.
#pragma once

#include "strata/plan/planner.h"
#include "strata/schedule/step_schedule.h"

namespace strata {

/// Returns the fastest plan that fits, or else the one of the smallest peak. Its schedule isn't
/// validated yet.
Plan propose(const PlanRequest& request);

bool fits(const Plan& plan);

/// What the plan's programs are made of.
schedule::StepRequest step_request(const PlanRequest& request, const Plan& plan);

}  // namespace strata
