/// Attributes every instant of a rank's step to a use, and idle time to its cause.
///
/// Every instant of the step is counted once, so the uses of a rank sum to the step's length:
///
///   compute         forward, recompute, backward
///   update          the optimizer, and sums of tied gradients; work, but not the model's
///   fill and drain  the waits that a pipeline of equal stages has, too: for the production of its
///   first message and its first gradient; after its last forward, for other gradients, less the
///   extra time of the slowest stage; after its last compute, for the last compute of any rank
///   imbalance       every other wait for a message that its sender has not produced yet
///   link            weights and gradients in transit from or to the host
///   host update     weights that the host has not updated yet
///   disk            weights or states being read or written
///   transfer        messages in transit; weights from peers; tied weights
///   reduction       sums over replicas or ranks: gradients, their norm
///   launches        the part of an action's time in which a device waited for its host
///   input           from the begin of the step to the rank's first action: data loading
///   other           between actions, and after the last: the interpreter itself
///
/// The sender of an activation is assumed to be the previous stage, of a gradient the next stage; a
/// skip from farther away has arrived earlier. Of several ranks with the same stage, the n-th
/// communicates with the n-th of the adjacent stage. Events of a rank do not overlap. A wait for
/// weights or offloaded gradients is attributed to what the rank's tracks do at that time: the
/// link, else the host's optimizer, else the disk, else the peers.
///
/// Units   seconds of the events' clock.
/// Cost    n log n in the number of events.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "strata/base/track_trace.h"
#include "strata/schedule/trace.h"

namespace strata {

enum class TimeUse : std::uint8_t {
  kCompute,
  kUpdate,
  kFillAndDrain,
  kImbalance,
  kLink,
  kHostUpdate,
  kDisk,
  kTransfer,
  kReduction,
  kRows,
  kLaunch,
  kInput,
  kOther,
};
constexpr int kNumTimeUses = 13;

const char* name_of(TimeUse use);  ///< "fill and drain"

/// Whether the use is forward, recompute, backward or update; everything else is idle time.
bool is_work(TimeUse use);

/// How reports show the events of one operation.
struct EventLook {
  TimeUse use;        ///< the use of its own time, independent of other ranks
  const char* style;  ///< class of its colour in the style sheet
  const char* words;  ///< text of the tooltip
};

const EventLook& look_of(Op op);

struct TimeSplit {
  std::array<double, kNumTimeUses> seconds{};

  double& operator[](TimeUse use) { return seconds[static_cast<int>(use)]; }
  double operator[](TimeUse use) const { return seconds[static_cast<int>(use)]; }
  double idle_seconds() const;
};

/// The same seconds grouped by remedy; they sum to the step's length, too.
struct TimeSums {
  double work = 0;
  /// transfers and reductions that did not overlap with work
  double exposed_communication = 0;
  double rank_waits = 0;    ///< waits for ranks that had not produced their message
  double memory_waits = 0;  ///< waits for the link, the host's updates, the disk and embeddings
  double launch_waits = 0;  ///< waits of a device for launches
  double other = 0;
};
TimeSums sums_of(const TimeSplit& split);

/// Returns one split per rank, of the step from `begin_seconds` to `end_seconds`. If a rank's
/// device has a track of its own (device_time.h), its work is that of the device. `tracks`: the
/// tracks of each rank; empty: none.
std::vector<TimeSplit> attribute_time(const std::vector<std::vector<TraceEvent>>& ranks,
                                      double begin_seconds, double end_seconds,
                                      const std::vector<std::vector<TrackEvent>>& tracks = {});

}  // namespace strata
