/// Cuts loops over elements, rows and columns into pieces for the calling thread's pool, where cuts
/// don't change bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "strata/device/thread_pool.h"

namespace strata {

/// Pieces a thread: finer than threads, so that a slow core holds nobody up for long.
inline constexpr std::int64_t kPiecesPerThread = 4;

/// Into how many pieces of at least `least` units n units are cut for this thread's pool.
inline std::int64_t pieces_of(std::int64_t n, std::int64_t least,
                              std::int64_t per_thread = kPiecesPerThread) {
  const int threads = thread_pool().threads();
  if (threads == 1) return 1;
  return std::clamp<std::int64_t>(n / std::max<std::int64_t>(1, least), 1, per_thread * threads);
}

/// Calls f(begin, end) on pieces of [0, n), none of less than `least` units, that begin at multiples
/// of `unit`.
template <typename F>
void parallel_ranges(std::int64_t n, std::int64_t least, F f, std::int64_t unit = 1) {
  const std::int64_t units = (n + unit - 1) / unit, pieces = pieces_of(n, std::max(least, unit));
  thread_pool().run(n > 0 ? pieces : 0, [&](std::int64_t i) {
    f(units * i / pieces * unit, std::min(n, units * (i + 1) / pieces * unit));
  });
}

inline constexpr std::int64_t kLeastElements = 1 << 14;  // below, another thread costs more
inline constexpr std::int64_t kColumnUnit = 64;

template <typename F>
void parallel_elements(std::int64_t n, F f) {
  parallel_ranges(n, kLeastElements, f, 16);
}

/// Ranges of rows, each row `columns` elements.
template <typename F>
void parallel_rows(std::int64_t rows, std::int64_t columns, F f) {
  parallel_ranges(rows, std::max<std::int64_t>(1, kLeastElements / columns), f);
}

/// Ranges of columns, for sums over all rows. A row's part is some cache lines long: kernels read
/// several vectors of a row before they go to the next.
template <typename F>
void parallel_columns(std::int64_t rows, std::int64_t columns, F f) {
  parallel_ranges(columns, std::max<std::int64_t>(1, kLeastElements / rows), f, kColumnUnit);
}

}  // namespace strata
