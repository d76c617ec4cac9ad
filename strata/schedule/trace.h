/// Records what a rank did and when: spans on one clock, at no cost when no log is given.
///
/// Threads  one TraceLog belongs to one rank's thread; read it when the rank has stopped.
/// Units    seconds of now_seconds().
#pragma once

#include <vector>

#include "strata/base/measurement.h"
#include "strata/schedule/action.h"

namespace strata {

/// One span; the numbers are -1 where none.
struct TraceEvent {
  Op op;
  int stage;
  int micro_batch;
  int first_layer;
  double begin_seconds;
  double end_seconds;
};

/// Of an action: where it stands and when it begins; its end is not known yet.
inline TraceEvent event_of(const Action& action, double begin_seconds) {
  return {action.op,          action.stage,
          action.micro_batch, action.layers.size() > 0 ? action.layers.begin : -1,
          begin_seconds,      begin_seconds};
}

class TraceLog {
 public:
  void add(const TraceEvent& event) { events_.push_back(event); }
  const std::vector<TraceEvent>& events() const { return events_; }
  void clear() { events_.clear(); }

 private:
  std::vector<TraceEvent> events_;
};

/// Adds the time between its construction and destruction to `log`; a null log costs one branch.
class TraceSpan {
 public:
  TraceSpan(TraceLog* log, const Action& action) : log_(log) {
    if (log_) event_ = event_of(action, now_seconds());
  }
  ~TraceSpan() {
    if (!log_) return;
    event_.end_seconds = now_seconds();
    log_->add(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceLog* log_;
  TraceEvent event_{};
};

}  // namespace strata
