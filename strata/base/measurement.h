/// Reads the one monotonic clock of every measurement and trace span, and takes the middle of what
/// was measured.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace strata {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What a noisy machine disturbs least: the middle value, the upper one of two; 0 for none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace strata
