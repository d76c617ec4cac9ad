/// Brings what every rank did and measured in a run to rank 0, across processes.
///
/// Threads  collective.
#pragma once

#include <vector>

#include "strata/comm/group.h"
#include "strata/pipeline/layer_seconds.h"
#include "strata/schedule/trace.h"

namespace strata {

/// What every rank did in one step, on the clock of now_seconds().
struct MeasuredStep {
  double begin_seconds = 0;
  double end_seconds = 0;
  std::vector<std::vector<TraceEvent>> ranks;
};

/// `steps` have this rank's events alone; on rank 0 they then have all ranks'.
void gather_steps(Group& group, std::vector<MeasuredStep>& steps);

/// By layer, the mean of the ranks that have it; empty but on rank 0.
std::vector<LayerSeconds> gather_layer_seconds(Group& group, const LayerTimes& own, int num_layers);

}  // namespace strata
