/// Records what a rank did and when, as spans on one clock. Without a log it costs nothing.
///
/// Threads  a TraceLog belongs to one rank's thread; read it after the rank has stopped.
/// Units    seconds of now_seconds().
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "strata/base/measurement.h"
#include "strata/schedule/action.h"

namespace strata {

/// One span; a number that does not apply is -1.
struct TraceEvent {
  Op op;
  int stage;
  int micro_batch;
  int first_layer;
  double begin_seconds;
  double end_seconds;
};

/// An event with the action's numbers and its begin; the caller sets the end.
inline TraceEvent event_of(const Action& action, double begin_seconds) {
  return {action.op,          action.stage,
          action.micro_batch, action.layers.size() > 0 ? action.layers.begin : -1,
          begin_seconds,      begin_seconds};
}

class TraceLog {
 public:
  void add(const TraceEvent& event) { events_.push_back(event); }

  /// Adds a wait for memory that ends now, unless it is shorter than the measurement error.
  void add_wait(Op op, int layer, double begin_seconds);

  /// Adds `event`, split at the events that were added after the first `known` and lie within it:
  /// an action that waits for memory becomes two spans around the wait. These events take the
  /// action's place in the program.
  void add_around(TraceEvent event, std::size_t known);

  const std::vector<TraceEvent>& events() const { return events_; }
  void clear() { events_.clear(); }

 private:
  std::vector<TraceEvent> events_;
};

inline void TraceLog::add_wait(Op op, int layer, double begin_seconds) {
  constexpr double kNothing = 50e-6;  // the time of a check that does not have to wait
  const double now = now_seconds();
  if (now - begin_seconds >= kNothing) add({op, -1, -1, layer, begin_seconds, now});
}

inline void TraceLog::add_around(TraceEvent event, std::size_t known) {
  // A shorter span before a wait is the overhead of reaching the wait, so it is dropped.
  constexpr double kShortSeconds = 50e-6;
  const auto first = events_.begin() + static_cast<std::ptrdiff_t>(std::min(known, events_.size()));
  std::vector<TraceEvent> within(first, events_.end());
  events_.erase(first, events_.end());
  const double end = event.end_seconds;
  for (TraceEvent& part : within) {
    part.stage = event.stage;
    part.micro_batch = event.micro_batch;
    event.end_seconds = part.begin_seconds;
    if (event.end_seconds - event.begin_seconds >= kShortSeconds) {
      events_.push_back(event);
    } else {
      part.begin_seconds = event.begin_seconds;
    }
    events_.push_back(part);
    event.begin_seconds = part.end_seconds;
  }
  event.end_seconds = end;
  events_.push_back(event);
}

/// Adds the time between its construction and destruction to `log`; with a null log it costs one
/// branch.
class TraceSpan {
 public:
  TraceSpan(TraceLog* log, const Action& action) : log_(log) {
    if (!log_) return;
    known_ = log_->events().size();
    event_ = event_of(action, now_seconds());
  }
  ~TraceSpan() {
    if (!log_) return;
    event_.end_seconds = now_seconds();
    log_->add_around(event_, known_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceLog* log_;
  std::size_t known_ = 0;
  TraceEvent event_{};
};

}  // namespace strata
