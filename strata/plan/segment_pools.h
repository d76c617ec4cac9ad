/// Counts what recorded segments of a program keep: a recording has a pool of its own (device/recording.h), as
/// large as what its segment at most holds of its own making. What earlier segments made and it lets go is theirs,
/// and no room for it.
///
/// Units  bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "strata/schedule/segments.h"

namespace strata {

class SegmentPools {
 public:
  SegmentPools() = default;  ///< nothing is recorded
  /// `fixed`: what the rank holds before its first action.
  SegmentPools(const std::vector<Segment>& segments, std::int64_t fixed)
      : segments_(&segments), fixed_(fixed) {}

  /// The action at a place of the program: held before it, at most while it runs, and behind it.
  void perform(int position, std::int64_t before, std::int64_t peak, std::int64_t after) {
    const Segment* segment = at(static_cast<std::size_t>(position));
    if (segment == nullptr) return;
    if (segment->begin == static_cast<std::size_t>(position)) {
      all_ += std::exchange(last_, 0);
      least_ = before;
    }
    last_ = std::max(last_, peak - least_);
    least_ = std::min(least_, after);
  }

  /// What all pools take beyond what the rank holds at a time, of whose peak that is known.
  std::int64_t beyond(std::int64_t peak) const {
    return segments_ == nullptr ? 0 : std::max<std::int64_t>(0, all_ + last_ - (peak - fixed_));
  }

 private:
  const Segment* at(std::size_t position) {
    if (segments_ == nullptr) return nullptr;
    while (next_ < segments_->size() && position >= (*segments_)[next_].end) ++next_;
    const bool within = next_ < segments_->size() && position >= (*segments_)[next_].begin;
    return within ? &(*segments_)[next_] : nullptr;
  }

  const std::vector<Segment>* segments_ = nullptr;
  std::size_t next_ = 0;  // the last segment that was not behind: programs only move on
  std::int64_t fixed_ = 0;
  std::int64_t least_ = 0;  // held since the last segment began
  std::int64_t last_ = 0;   // its pool
  std::int64_t all_ = 0;    // those before it
};

}  // namespace strata
