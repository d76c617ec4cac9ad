/// Says in the planner's terms what a recipe asks for: its model, what layers read and cost, what the mesh and the
/// memory are, and what the trainer will do.
///
/// Errors  UserError: a size that can't be counted, and what makers of models refuse; nothing is allocated.
#pragma once

#include "strata/measure/byte_costs.h"
#include "strata/nn/graph/sequential.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/search/planner.h"
#include "strata/task/task.h"

namespace strata {

/// The recipe's model as one of its tensor-parallel ranks has it; whole, without tensor parallelism.
Sequential model_of(const Recipe& recipe);
Sequential whole_model_of(const Recipe& recipe);

/// What costs of layers are made of.
CostRequest cost_request(const Recipe& recipe, bool keep_intermediates,
                         const MachineProfile& machine);

/// `processes`: among which the ranks are divided; 1: not known.
PlanRequest plan_request(const Recipe& recipe, const Sequential& model,
                         const MachineProfile& machine, int processes = 1);

/// With bytes a parameter of another system; null: ours.
PlanRequest with_convention(PlanRequest request, const ParameterBytes* bytes);

}  // namespace strata
