/// Counts the memory that recordings keep on a rank's device. Each segment has a pool of its own
/// (device/recording.h), as large as the peak of what the segment allocates. A segment cannot reuse
/// what earlier segments allocated, even after freeing it.
///
/// A pool is not available to actions performed between segments, either. If a value or gradient of
/// theirs is allocated when a segment begins, its address is recorded permanently: the next step's
/// value is copied there and its own memory is freed. Everything else that these actions allocate
/// is freed normally.
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
  SegmentPools() = default;  ///< if nothing is recorded
  /// `fixed`: what the rank holds before its first action. `others`: the pools of other programs'
  /// recordings.
  SegmentPools(const std::vector<Segment>& segments, std::int64_t fixed, std::int64_t others)
      : segments_(segments.empty() ? nullptr : &segments), fixed_(fixed), others_(others) {}

  bool empty() const { return segments_ == nullptr; }

  /// Call before the action at `position`, with the bytes held at that point.
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

  /// Call after it, with the bytes held before it, their peak while it ran, and the bytes held now.
  /// `stays`: the freed bytes that were at a recorded address or in a pool.
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

  // ---- Values and gradients, from the action that makes them to the one that sends or frees them
  static constexpr int kOrdinary = std::numeric_limits<int>::max(), kForEver = -1;

  /// Registers a new value and returns the argument for stays().
  int made(std::int64_t bytes) {
    if (within_) return kForEver;
    fresh_ += bytes;
    return begun_;
  }
  /// Whether the value is at a recorded address or in a pool.
  bool stays(int made) const { return made < begun_; }
  /// The value was freed or sent: segments that begin later do not find it.
  void leaves(int made, std::int64_t bytes) {
    if (made == begun_) fresh_ -= bytes;
  }
  /// A sent value was freed while the rank was doing something else.
  void let_go(int made, std::int64_t bytes) {
    least_ -= bytes;
    if (!stays(made)) ordinary_ -= bytes;
  }

  /// What this program's recordings keep permanently.
  std::int64_t bytes() const { return all_ + last_ + placed_; }

  /// What all recordings take beyond the rank's simultaneous maximum, whose peak is known.
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
  std::size_t next_ = 0;  // the first segment that ends after the current position
  std::int64_t fixed_ = 0, others_ = 0;
  bool within_ = false;     // the current action is in a segment
  int begun_ = 0;           // segments so far
  std::int64_t least_ = 0;  // least bytes held since the last segment began
  std::int64_t last_ = 0;   // pool of the last segment
  std::int64_t all_ = 0;    // pools of the segments before it
  // bytes made by performed actions that were held when a segment began
  std::int64_t placed_ = 0;
  std::int64_t ordinary_ = 0;       // bytes made by performed actions, without `placed_`
  std::int64_t fresh_ = 0;          // the part of that which a segment that begins now would place
  std::int64_t most_ordinary_ = 0;  // includes what performed actions need while they run
};

}  // namespace strata
