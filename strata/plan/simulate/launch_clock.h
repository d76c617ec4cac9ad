/// Computes when the host of a device has enqueued its work: the kernels of a performed action one
/// by one, a recorded segment at once (simulator.h states the rules).
///
/// Units  seconds from the start of the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/schedule/segments.h"

namespace strata {

class LaunchClock {
 public:
  /// `segments`: those of the rank's program; null: every action is performed. Both must outlive
  /// the clock.
  LaunchClock(const LaunchSeconds& seconds, const std::vector<Segment>* segments)
      : seconds_(seconds), segments_(segments) {}

  bool enqueues() const { return seconds_.kernel > 0; }  ///< false: the rank computes itself
  double enqueued() const { return enqueued_; }  ///< when everything so far has been enqueued
  void wait(double until) { enqueued_ = std::max(enqueued_, until); }

  /// Returns when the action at `position`, which only increases, ends. It has `kernels` kernels;
  /// without a host it would start at `begin` and take `seconds`.
  double end_of(std::size_t position, int kernels, double begin, double work) {
    if (const Segment* segment = recorded_at(position)) {
      if (std::exchange(enqueued_segment_, segment) != segment) enqueued_ += seconds_.segment;
      return std::max(begin, enqueued_) + work;
    }
    const double first = enqueued_ + seconds_.kernel;
    enqueued_ += kernels * seconds_.kernel;
    one_by_one_ += kernels;
    return std::max(std::max(begin, first) + work, enqueued_ + work / kernels);
  }

  int one_by_one() const { return one_by_one_; }  ///< kernels enqueued outside of segments

 private:
  const Segment* recorded_at(std::size_t position) {
    if (segments_ == nullptr) return nullptr;
    while (next_ < segments_->size() && position >= (*segments_)[next_].end) ++next_;
    const bool within = next_ < segments_->size() && position >= (*segments_)[next_].begin;
    return within ? &(*segments_)[next_] : nullptr;
  }

  const LaunchSeconds& seconds_;
  const std::vector<Segment>* segments_;
  std::size_t next_ = 0;  // the first segment that ends after the current position
  const Segment* enqueued_segment_ = nullptr;
  double enqueued_ = 0;
  int one_by_one_ = 0;
};

}  // namespace strata
