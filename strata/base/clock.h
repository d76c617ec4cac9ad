/// Reads one monotonic clock, in seconds, for every measurement and trace span.
#pragma once

#include <chrono>

namespace strata {

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace strata
