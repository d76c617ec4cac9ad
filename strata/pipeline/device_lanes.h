/// Records when a device that runs asynchronously does its work, by its own clock.
///
///     DeviceLanes lanes(Stream::compute(device), trace);
///     {
///       const auto span = lanes.span(LaneKind::kCompute, layer);
///       ...                                       // enqueue work on the compute stream
///     }
///     lanes.settle();                             // later: adds completed spans to the trace
///
/// A span starts when the device reaches it, so it excludes waits in front of it: gaps between
/// spans are waits. A span within another is part of it and is not recorded separately. A recorded
/// segment is therefore one span without events inside the recording.
///
/// Ranks that share a device share its compute stream: work that one enqueues in between is in the
/// other's span, too.
///
/// Threads  a rank's.
/// Cost     two timed events per span; only the constructor waits, to compare clocks.
#pragma once

#include <deque>
#include <utility>

#include "strata/base/lane_trace.h"
#include "strata/device/device.h"

namespace strata {

class DeviceLanes {
 public:
  /// `compute` has a queue; `trace` must outlive this object.
  DeviceLanes(Stream compute, LaneTrace& trace);

  class [[nodiscard]] Span {
   public:
    Span() = default;  ///< records nothing
    Span(DeviceLanes& lanes, LaneKind kind, int layer);
    Span(Span&& other) noexcept : lanes_(std::exchange(other.lanes_, nullptr)) {}
    Span& operator=(Span&&) = delete;
    ~Span();

   private:
    DeviceLanes* lanes_ = nullptr;
  };
  /// `layer`: -1: no layer.
  Span span(LaneKind kind, int layer) { return {*this, kind, layer}; }

  /// Adds what has ended since the last call.
  void settle();

 private:
  struct Running {
    LaneKind kind;
    int layer;
    double given_seconds;  // by the host
    Completion begin, end;
  };

  Stream compute_;
  LaneTrace& trace_;
  std::deque<Running> running_;  // the last one may be open
  bool open_ = false;
  Completion compared_;  // happened at compared_seconds_
  double compared_seconds_ = 0;
};

}  // namespace strata
