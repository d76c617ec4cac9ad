/// Counts what every rank sends in a step along each axis of the mesh, and how much of the step it
/// explains.
///
/// Exposed is what the step would be shorter by if the axis took no time: work that hides behind
/// compute isn't in it.
///
/// Units  bytes sent by one rank; seconds of a step.
#pragma once

#include <vector>

#include "strata/plan/mesh_request.h"
#include "strata/schedule/step_plan.h"

namespace strata {

struct AxisTraffic {
  double bytes = 0;
  double seconds = 0;
};

struct RankTraffic {
  AxisTraffic pp;  ///< activations, gradients, tied weights
  AxisTraffic dp;  ///< gradients, weights of ZeRO
  AxisTraffic tp;  ///< sums inside layers
};

struct Communication {
  std::vector<RankTraffic> ranks;  ///< of the pipeline; each stands for its replicas
  double exposed_pp_seconds = 0;
  double exposed_dp_seconds = 0;
  double exposed_tp_seconds = 0;
};

/// Of a training step; `costs` without mesh seconds.
Communication communication_of(const StepPlan& steps, int micro_batches, const CostTable& costs,
                               const MeshRequest& mesh);

}  // namespace strata
