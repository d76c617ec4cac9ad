/// Counts what recordings keep on a rank's device: each segment has a pool of its own (device/recording.h), as
/// large as what it at most holds of its own making. What earlier segments made and it lets go is theirs, and no room
/// for it.
///
/// Nor is any pool room for what performed actions make between segments. A value or gradient of theirs that is there
/// when a segment begins has the place that was recorded, for ever: the next step's is copied there, and its own
/// memory goes. All else that they make goes when they let it go.
///
/// Units  bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
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

  bool empty() const { return segments_ == nullptr; }

  /// Before the action at a place of the program, where so much is held.
  void begin(int position, std::int64_t held) {
    if (empty()) return;
    const Segment* segment = at(static_cast<std::size_t>(position));
    within_ = segment != nullptr;
    if (!within_ || segment->begin != static_cast<std::size_t>(position)) return;
    all_ += std::exchange(last_, 0);
    least_ = held;
    ++begun_;
    ordinary_ -= fresh_;
    placed_ += std::exchange(fresh_, 0);
  }

  /// Behind it: what was held before it, at most while it ran, and is now. `stays`: of what it has let go, what lay
  /// in a recorded place or in a pool.
  void end(std::int64_t before, std::int64_t peak, std::int64_t after, std::int64_t stays) {
    if (empty()) return;
    if (within_) {
      last_ = std::max(last_, peak - least_);
      least_ = std::min(least_, after);
    } else {
      most_ordinary_ = std::max(most_ordinary_, ordinary_ + peak - before);
      ordinary_ += after + stays - before;
    }
  }

  // ---- Values and gradients, from the action that makes them to the one that sends them or lets them go
  static constexpr int kOrdinary = std::numeric_limits<int>::max(), kForEver = -1;

  /// Made now: what stays() is asked by.
  int made(std::int64_t bytes) {
    if (within_) return kForEver;
    fresh_ += bytes;
    return begun_;
  }
  /// Whether what was made then lies in a recorded place or in a pool.
  bool stays(int made) const { return made < begun_; }
  /// Gone, or sent: no segment that begins from now on finds it.
  void leaves(int made, std::int64_t bytes) {
    if (made == begun_) fresh_ -= bytes;
  }
  /// What was sent has left the rank while it did something else.
  void let_go(int made, std::int64_t bytes) {
    least_ -= bytes;
    if (!stays(made)) ordinary_ -= bytes;
  }

  /// What this program's recordings keep, for ever.
  std::int64_t bytes() const { return all_ + last_ + placed_; }

  /// What all recordings take beyond what the rank holds at a time, of whose peak that is known.
  std::int64_t beyond(std::int64_t peak) const {
    if (empty()) return others_;
    return std::max<std::int64_t>(0, bytes() + most_ordinary_ - (peak - fixed_) + others_);
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
  bool within_ = false;             // the action that runs is in a segment
  int begun_ = 0;                   // segments
  std::int64_t least_ = 0;          // held since the last segment began
  std::int64_t last_ = 0;           // its pool
  std::int64_t all_ = 0;            // those before it
  std::int64_t placed_ = 0;         // made by performed actions, and there when a segment began
  std::int64_t ordinary_ = 0;       // the rest of it
  std::int64_t fresh_ = 0;          // of that, what would be placed if a segment began now
  std::int64_t most_ordinary_ = 0;  // what performed actions need while they run included
};

}  // namespace strata
