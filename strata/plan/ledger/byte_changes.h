/// Computes the bytes of a rank over time from changes that arrive out of order: an action frees at
/// its end, which other actions' frees on the same rank may precede.
///
/// Units  bytes; seconds from the start of the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace strata {

struct MemoryPoint {
  double seconds = 0;
  std::int64_t bytes = 0;
};

class ByteChanges {
 public:
  void add(double seconds, std::int64_t bytes) {
    if (bytes != 0) changes_.push_back({seconds, changes_.size(), bytes});
  }

  /// Ascending in time; changes at the same time keep their order.
  std::vector<MemoryPoint> timeline() {
    std::sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) {
      return std::pair(a.seconds, a.order) < std::pair(b.seconds, b.order);
    });
    std::int64_t level = 0;
    std::vector<MemoryPoint> points;
    points.reserve(changes_.size());
    for (const Change& change : changes_) points.push_back({change.seconds, level += change.bytes});
    return points;
  }

 private:
  struct Change {
    double seconds = 0;
    std::size_t order = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Change> changes_;
};

}  // namespace strata
