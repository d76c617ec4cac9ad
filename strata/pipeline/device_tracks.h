/// Records when a device that runs asynchronously does its work, by its own clock.
///
///     DeviceTracks tracks(Stream::compute(device), trace);
///     {
///       const auto span = tracks.span(TrackKind::kCompute, layer);
///       ...                                       // enqueue work on the compute stream
///     }
///     tracks.settle();                             // later: adds completed spans to the trace
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

#include "strata/base/track_trace.h"
#include "strata/device/device.h"

namespace strata {

class DeviceTracks {
 public:
  /// `compute` has a queue; `trace` must outlive this object.
  DeviceTracks(Stream compute, TrackTrace& trace);

  class [[nodiscard]] Span {
   public:
    Span() = default;  ///< records nothing
    Span(DeviceTracks& tracks, TrackKind kind, int layer);
    Span(Span&& other) noexcept : tracks_(std::exchange(other.tracks_, nullptr)) {}
    Span& operator=(Span&&) = delete;
    ~Span();

   private:
    DeviceTracks* tracks_ = nullptr;
  };
  /// `layer`: -1: no layer.
  Span span(TrackKind kind, int layer) { return {*this, kind, layer}; }

  /// Adds what has ended since the last call.
  void settle();

 private:
  struct Running {
    TrackKind kind;
    int layer;
    double enqueued_seconds;  // by the host
    Completion begin, end;
  };

  Stream compute_;
  TrackTrace& trace_;
  std::deque<Running> running_;  // the last one may be open
  bool open_ = false;
  Completion compared_;  // happened at compared_seconds_
  double compared_seconds_ = 0;
};

}  // namespace strata
