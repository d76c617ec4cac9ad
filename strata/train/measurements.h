/// Gathers the events and measurements of every rank on rank 0, across processes.
///
/// Threads  collective.
#pragma once

#include <vector>

#include "strata/base/track_trace.h"
#include "strata/comm/group.h"
#include "strata/pipeline/layer_seconds.h"
#include "strata/schedule/trace.h"

namespace strata {

/// The events of every rank in one step, on the clock of now_seconds().
struct MeasuredStep {
  double begin_seconds = 0;
  double end_seconds = 0;
  std::vector<std::vector<TraceEvent>> ranks;
  std::vector<std::vector<TrackEvent>>
      tracks;  ///< per rank: events of its tracks that ended during the step
};

/// On entry `steps` have this rank's events and tracks only; on return rank 0 has those of all
/// ranks.
void gather_steps(Group& group, std::vector<MeasuredStep>& steps);

/// The track events of a rank during one step, collected from all steps, because an event that
/// ended later may have started in this one.
std::vector<TrackEvent> tracks_during(const std::vector<MeasuredStep>& steps, std::size_t step,
                                      int rank);

/// Per layer, the mean of the ranks that have it; empty except on rank 0.
std::vector<LayerSeconds> gather_layer_seconds(Group& group, const LayerTimes& own, int num_layers);

}  // namespace strata
