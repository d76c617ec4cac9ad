/// Converts a resolved recipe to a request to the planner: its model, the inputs and costs of
/// layers, the mesh and the memory, and what the trainer will do. `machine` is
/// ResolvedRun::machine.
///
/// Errors  UserError: a size that is too large to count, and what makers of models refuse.
///         Allocates no tensors.
#pragma once

#include <memory>

#include "strata/measure/byte_costs.h"
#include "strata/nn/graph/sequential.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/search/planner.h"
#include "strata/run/recipe_machine.h"
#include "strata/task/task.h"

namespace strata {

/// The recipe's model for one of its tensor-parallel ranks; the whole model without tensor
/// parallelism.
Sequential model_of(const Recipe& recipe);
Sequential whole_model_of(const Recipe& recipe);

/// Whether updates need weights and states on the rank's device, a CPU: not on the host or a disk.
bool updates_on_device_alone(const Recipe& recipe);

/// The order in mesh.schedule_file; null with another schedule.
/// Errors  UserError: no file, no order, an order that cannot run or is for another mesh.
std::shared_ptr<const Schedule> read_order_of(const MeshOptions& mesh);

/// The request for the costs of the layers in the recipe's recompute mode.
CostRequest cost_request(const Recipe& recipe, const MachineProfile& machine);

/// `processes`: number of processes that the ranks are divided among; 1: unknown. `devices`: the
/// GPUs of the ranks; by default each rank has its own device.
PlanRequest plan_request(const Recipe& recipe, const Sequential& model,
                         const MachineProfile& machine, int processes = 1,
                         const RankDevices& devices = {});

/// The request with another system's bytes per parameter; null: ours.
PlanRequest with_convention(PlanRequest request, const ParameterBytes* bytes);

}  // namespace strata
