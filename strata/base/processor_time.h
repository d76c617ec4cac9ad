/// Reads the processor seconds of a thread: other work on the machine does not count.
#pragma once

#include <time.h>

namespace strata {

inline double thread_cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace strata
