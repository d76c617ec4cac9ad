/// Counts what recordings keep on a rank's device: each segment has a pool of its own (device/recording.h), as
/// large as what it at most holds of its own making. What earlier segments made and it lets go is theirs, and no room
/// for it.
///
/// Nor is any pool room for what performed actions make between segments. What they receive for a segment has a place
/// that was recorded, for ever; so at most all counts that they did not let go themselves.
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
  /// `fixed`: what the rank holds before its first action. `others`: what recordings of other programs keep.
  SegmentPools(const std::vector<Segment>& segments, std::int64_t fixed, std::int64_t others)
      : segments_(segments.empty() ? nullptr : &segments), fixed_(fixed), others_(others) {}

  /// The action at a place of the program: held before it, at most while it runs, and behind it.
  void perform(int position, std::int64_t before, std::int64_t peak, std::int64_t after) {
    if (segments_ == nullptr) return;
    const Segment* segment = at(static_cast<std::size_t>(position));
    if (segment == nullptr) {
      most_between_ = std::max(most_between_, between_ + peak - before);
      between_ = std::max<std::int64_t>(0, between_ + after - before);
      return;
    }
    if (segment->begin == static_cast<std::size_t>(position)) {
      all_ += std::exchange(last_, 0);
      least_ = before;
    }
    last_ = std::max(last_, peak - least_);
    least_ = std::min(least_, after);
  }

  /// What this program's recordings keep, for ever.
  std::int64_t bytes() const { return all_ + last_ + between_; }

  /// What all recordings take beyond what the rank holds at a time, of whose peak that is known.
  std::int64_t beyond(std::int64_t peak) const {
    if (segments_ == nullptr) return others_;
    return std::max<std::int64_t>(0, all_ + last_ + most_between_ - (peak - fixed_) + others_);
  }

 private:
  const Segment* at(std::size_t position) {
    while (next_ < segments_->size() && position >= (*segments_)[next_].end) ++next_;
    const bool within = next_ < segments_->size() && position >= (*segments_)[next_].begin;
    return within ? &(*segments_)[next_] : nullptr;
  }

  const std::vector<Segment>* segments_ = nullptr;
  std::size_t next_ = 0;  // the last segment that was not behind: programs only move on
  std::int64_t fixed_ = 0, others_ = 0;
  std::int64_t least_ = 0;         // held since the last segment began
  std::int64_t last_ = 0;          // its pool
  std::int64_t all_ = 0;           // those before it
  std::int64_t between_ = 0;       // made by performed actions, and not let go by them
  std::int64_t most_between_ = 0;  // at a time, what they needed while they ran included
};

}  // namespace strata
