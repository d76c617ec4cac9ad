/// Writes timelines as a trace for chrome://tracing and ui.perfetto.dev.
///
/// A process of the trace is one timeline of all ranks ("measured", "predicted"). A thread is a
/// rank, or a track of the rank ("rank 0, link in") whose spans are layers. A rank's spans are
/// named as in the grid: "F s0 m3"; their arguments hold stage, micro-batch and layer.
///
/// Errors  those of DurableFile (base/durable_file.h).
#pragma once

#include <string>
#include <vector>

#include "strata/base/track_trace.h"
#include "strata/schedule/trace.h"

namespace strata {

struct TraceProcess {
  std::string name;
  double origin_seconds = 0;                    ///< time of the clock at which the trace starts
  std::vector<std::vector<TraceEvent>> ranks;   ///< one list a rank
  std::vector<std::vector<TrackEvent>> tracks;  ///< one list a rank, or empty
};

/// "F s0 m3", "U s1", "N".
std::string span_name(const TraceEvent& event);

std::string to_chrome_trace(const std::vector<TraceProcess>& processes);
void write_chrome_trace(const std::string& path, const std::vector<TraceProcess>& processes);

}  // namespace strata
