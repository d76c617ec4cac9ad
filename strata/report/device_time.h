/// Splits a rank's step by the activity of its device, if the device runs asynchronously and its
/// tracks are in the trace: compute, exposed communication, exposed copies, and gaps in which the
/// device waited for launches.
///
/// Units   seconds of the events' clock; every instant of the step is counted once.
/// Cost    n log n in the number of events.
#pragma once

#include <vector>

#include "strata/base/track_trace.h"

namespace strata {

/// Whether the device itself runs the track.
inline bool is_device_work(TrackKind track) {
  return track == TrackKind::kCompute || track == TrackKind::kCommunicate;
}

struct DeviceTime {
  double busy = 0;                   ///< it computed
  double exposed_communication = 0;  ///< only communication was active
  double exposed_copies = 0;         ///< only copies from or to the host were active
  double gaps = 0;                   ///< nothing was enqueued: launch overhead, or the rank waited
  int longest_gap_layer = -1;        ///< the layer that followed the longest gap; -1: no layer did
  double longest_gap = 0;
};

/// All 0 if no track of the device is among the events.
DeviceTime device_time(const std::vector<TrackEvent>& tracks, double begin_seconds,
                       double end_seconds);

}  // namespace strata
