// The device's clock is compared with the host's once, while the device is idle. Afterwards two
// bounds keep both aligned without waits: no work starts before it was enqueued, and none ends
// after the host saw its end. Each end is the reference of the next, because a difference of events
// has the precision of a float.
#include "strata/pipeline/device_lanes.h"

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"

namespace strata {

DeviceLanes::DeviceLanes(Stream compute, LaneTrace& trace)
    : compute_(std::move(compute)), trace_(trace) {
  STRATA_CHECK(compute_.queue(), "pipeline.device_lanes");
  compute_.synchronize();
  compared_ = compute_.record(EventTime::kKnown);
  compared_.wait();
  compared_seconds_ = now_seconds();
}

DeviceLanes::Span::Span(DeviceLanes& lanes, LaneKind kind, int layer) {
  if (lanes.open_) return;
  lanes.running_.push_back({.kind = kind,
                            .layer = layer,
                            .given_seconds = now_seconds(),
                            .begin = lanes.compute_.record(EventTime::kKnown),
                            .end = {}});
  lanes.open_ = true;
  lanes_ = &lanes;
}

DeviceLanes::Span::~Span() {
  if (!lanes_) return;
  lanes_->open_ = false;
  try {
    lanes_->running_.back().end = lanes_->compute_.record(EventTime::kKnown);
  } catch (const std::exception&) {  // the next device call reports the error
    lanes_->running_.pop_back();
  }
}

void DeviceLanes::settle() {
  while (running_.size() > (open_ ? 1U : 0U) && running_.front().end.ready()) {
    const Running& done = running_.front();
    double begin = compared_seconds_ + seconds_between(compared_, done.begin);
    begin = std::max(begin, done.given_seconds);
    const double seconds = seconds_between(done.begin, done.end);
    const double end = std::min(begin + seconds, now_seconds());
    trace_.add({done.kind, done.layer, end - seconds, end});
    compared_ = done.end;
    compared_seconds_ = end;
    running_.pop_front();
  }
}

}  // namespace strata
