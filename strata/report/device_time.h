/// Splits a rank's step by what its device did, where that works behind the rank's back and its lanes are in
/// the trace: work, communication and copies that no work hid, and gaps, in which it waited to be given
/// something.
///
/// Units   seconds of the events' clock; every instant of the step is counted once.
/// Cost    n log n in the number of events.
#pragma once

#include <vector>

#include "strata/base/lane_trace.h"

namespace strata {

/// Lanes of the device itself; all others are beside it.
inline bool is_device_work(LaneKind lane) {
  return lane == LaneKind::kCompute || lane == LaneKind::kCommunicate;
}

struct DeviceTime {
  double busy = 0;                   ///< it computed
  double exposed_communication = 0;  ///< it only exchanged with others
  double exposed_copies = 0;         ///< it only copied from or to the host
  double gaps = 0;                   ///< nothing was given to it: launches, or the rank waited
  int longest_gap_layer = -1;        ///< what followed the longest; -1: none, or not a layer's
  double longest_gap = 0;
};

/// All 0 where no lane of the device's work is among the events.
DeviceTime device_time(const std::vector<LaneEvent>& lanes, double begin_seconds,
                       double end_seconds);

}  // namespace strata
