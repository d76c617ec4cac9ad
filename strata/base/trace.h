/// Records what a rank did and when: spans on one clock, at no cost when no log is given.
///
/// Threads  one TraceLog belongs to one rank's thread; read it when the rank has stopped.
/// Units    seconds of now_seconds().
#pragma once

#include <string>
#include <vector>

#include "strata/base/measurement.h"

namespace strata {

/// One span; `kind` is a static string ("F", "B", "wait", "update"), the numbers are -1 where none.
struct TraceEvent {
  const char* kind;
  int stage;
  int micro_batch;
  int first_layer;
  double begin_seconds;
  double end_seconds;
};

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
  TraceSpan(TraceLog* log, const char* kind, int stage = -1, int micro_batch = -1,
            int first_layer = -1)
      : log_(log) {
    if (log_) event_ = {kind, stage, micro_batch, first_layer, now_seconds(), 0};
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
