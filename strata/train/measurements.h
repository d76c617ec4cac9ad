/// Brings what every rank did and measured in a run to rank 0, across processes.
///
/// Threads  collective.
#pragma once

#include <vector>

#include "strata/base/lane_trace.h"
#include "strata/comm/group.h"
#include "strata/pipeline/layer_seconds.h"
#include "strata/schedule/trace.h"

namespace strata {

/// What every rank did in one step, on the clock of now_seconds().
struct MeasuredStep {
  double begin_seconds = 0;
  double end_seconds = 0;
  std::vector<std::vector<TraceEvent>> ranks;
  std::vector<std::vector<LaneEvent>>
      lanes;  ///< of each rank: what ended beside it during the step
};

/// `steps` have this rank's events and lanes alone; on rank 0 they then have all ranks'.
void gather_steps(Group& group, std::vector<MeasuredStep>& steps);

/// The lanes of a rank during one of them, of what all steps took: what ended later has begun in it, too.
std::vector<LaneEvent> lanes_during(const std::vector<MeasuredStep>& steps, std::size_t step,
                                    int rank);

/// By layer, the mean of the ranks that have it; empty but on rank 0.
std::vector<LayerSeconds> gather_layer_seconds(Group& group, const LayerTimes& own, int num_layers);

}  // namespace strata
