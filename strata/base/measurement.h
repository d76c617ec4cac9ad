/// Reads the one monotonic clock of every measurement and trace span, and computes medians.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace strata {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the middle value, which noise disturbs least: the upper one of two; 0 if there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace strata
