// The device's clock is compared with the host's once, while the device is idle. Afterwards two
// bounds keep both aligned without waits: no work starts before it was enqueued, and none ends
// after the host saw its end. Each end is the reference of the next, because a difference of events
// has the precision of a float.
#include "strata/pipeline/device_tracks.h"

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"

namespace strata {

DeviceTracks::DeviceTracks(Stream compute, TrackTrace& trace)
    : compute_(std::move(compute)), trace_(trace) {
  STRATA_CHECK(compute_.queue(), "pipeline.device_tracks");
  compute_.synchronize();
  compared_ = compute_.record(EventTime::kKnown);
  compared_.wait();
  compared_seconds_ = now_seconds();
}

DeviceTracks::Span::Span(DeviceTracks& tracks, TrackKind kind, int layer) {
  if (tracks.open_) return;
  tracks.running_.push_back({.kind = kind,
                             .layer = layer,
                             .enqueued_seconds = now_seconds(),
                             .begin = tracks.compute_.record(EventTime::kKnown),
                             .end = {}});
  tracks.open_ = true;
  tracks_ = &tracks;
}

DeviceTracks::Span::~Span() {
  if (!tracks_) return;
  tracks_->open_ = false;
  try {
    tracks_->running_.back().end = tracks_->compute_.record(EventTime::kKnown);
  } catch (const std::exception&) {  // the next device call reports the error
    tracks_->running_.pop_back();
  }
}

void DeviceTracks::settle() {
  while (running_.size() > (open_ ? 1U : 0U) && running_.front().end.ready()) {
    const Running& done = running_.front();
    double begin = compared_seconds_ + seconds_between(compared_, done.begin);
    begin = std::max(begin, done.enqueued_seconds);
    const double seconds = seconds_between(done.begin, done.end);
    const double end = std::min(begin + seconds, now_seconds());
    trace_.add({done.kind, done.layer, end - seconds, end});
    compared_ = done.end;
    compared_seconds_ = end;
    running_.pop_front();
  }
}

}  // namespace strata
