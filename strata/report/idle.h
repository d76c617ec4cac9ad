/// Says what every rank did with the time of a step, and why it did nothing where it did nothing.
///
/// Every instant of the step is counted once, so the uses of a rank sum to the step's length:
///
///   compute         forward, recompute, backward
///   update          the optimizer, and sums of tied gradients; work, but not the model's
///   fill and drain  what a pipeline of equal stages would wait for too: its first message and its
///                   first gradient to be made; behind its last forward, other gradients, less what
///                   the slowest stage needs longer for them; behind its last compute, the last
///                   compute of any rank
///   imbalance       every other wait for a message that its sender had not made yet
///   link            weights and gradients that live on the host and are on their way
///   host update     weights that the host has not updated yet
///   disk            what they wait for is read or written there
///   transfer        messages under way: made, and not yet here; weights from peers; tied weights
///   reduction       sums over replicas or ranks: gradients, their norm
///   launches        of an action's time on a device: what its host took to give it work to do
///   input           from the begin of the step to the rank's first action: data loading
///   other           between actions, and behind the last: the interpreter itself
///
/// The sender of an activation is taken to be the stage before, of a gradient the stage behind: a
/// skip that comes from further away was there first. Of several ranks with the same stage, the
/// n-th talks to the n-th of its neighbours. Events of a rank do not overlap. A wait for weights or for
/// offloaded gradients is for whatever the lanes beside the rank do meanwhile: the link, or else the
/// host's optimizer, or else the disk, or else the peers.
///
/// Units   seconds of the events' clock.
/// Cost    n log n in the number of events.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "strata/base/lane_trace.h"
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

/// Forward, recompute, backward and update; everything else is idle time.
bool is_work(TimeUse use);

/// What reports say of the events of one operation.
struct EventLook {
  TimeUse use;        ///< what it is in itself, whatever other ranks do
  const char* style;  ///< its colour, by the name that the style sheet has for it
  const char* words;  ///< under the pointer
};

const EventLook& look_of(Op op);

struct TimeSplit {
  std::array<double, kNumTimeUses> seconds{};

  double& operator[](TimeUse use) { return seconds[static_cast<int>(use)]; }
  double operator[](TimeUse use) const { return seconds[static_cast<int>(use)]; }
  double idle_seconds() const;
};

/// The same by what could be done about it; seconds that sum to the step's length, too.
struct TimeSums {
  double work = 0;
  double exposed_communication = 0;  ///< transfers and reductions that no work hid
  double rank_waits = 0;             ///< for ranks that had not made yet what was needed
  double memory_waits = 0;  ///< for the link, the host's updates, the disk and rows of embeddings
  double launch_waits = 0;  ///< in which a device waited to be given an action's work
  double other = 0;
};
TimeSums sums_of(const TimeSplit& split);

/// Work of a rank whose device has a lane of its own (device_time.h) is that of the device.
/// One split a rank, of the step from `begin_seconds` to `end_seconds`. `lanes`: of each rank; empty:
/// none has any.
std::vector<TimeSplit> attribute_time(const std::vector<std::vector<TraceEvent>>& ranks,
                                      double begin_seconds, double end_seconds,
                                      const std::vector<std::vector<LaneEvent>>& lanes = {});

}  // namespace strata
