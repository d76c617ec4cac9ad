/// Writes down when a device does what it is given, by its own clock, where it works behind the rank's back.
///
///     DeviceLanes lanes(Stream::compute(device), trace);
///     {
///       const auto span = lanes.span(LaneKind::kCompute, layer);
///       ...                                       // what is given to the compute stream
///     }
///     lanes.settle();                             // in a later step: adds to the trace what was done
///
/// A span begins when the device gets there, so what it waits for in front of the span is none of it: gaps
/// between spans are waits. A span within another is a part of it and is not written down by itself: so a
/// recorded segment is one, and nothing of it is asked for while it is recorded.
///
/// Ranks that share a device share its compute stream: what one gives in between is in the other's span, too.
///
/// Threads  a rank's.
/// Cost     two timed events a span; nothing waits but the constructor, which compares clocks.
#pragma once

#include <deque>
#include <utility>

#include "strata/base/lane_trace.h"
#include "strata/device/device.h"

namespace strata {

class DeviceLanes {
 public:
  /// `compute` has a queue; `trace` outlives this.
  DeviceLanes(Stream compute, LaneTrace& trace);

  class [[nodiscard]] Span {
   public:
    Span() = default;  ///< of nothing
    Span(DeviceLanes& lanes, LaneKind kind, int layer);
    Span(Span&& other) noexcept : lanes_(std::exchange(other.lanes_, nullptr)) {}
    Span& operator=(Span&&) = delete;
    ~Span();

   private:
    DeviceLanes* lanes_ = nullptr;
  };
  /// `layer`: -1: of none.
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
