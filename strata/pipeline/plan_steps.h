/// Makes the plan of a model from decisions that are taken; strata/plan decides by cost.
///
/// Errors  what StepPlan refuses.
#pragma once

#include "strata/nn/graph/sequential.h"
#include "strata/schedule/step_plan.h"

namespace strata {

StepPlan plan_steps(const Sequential& model, StepDecisions decisions);

}  // namespace strata
