/// Cuts loops over elements, rows and columns into pieces for the calling thread's pool, at places
/// that don't change bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "strata/device/thread_pool.h"

namespace strata {

/// Pieces per thread: finer than threads, so that a slow core does not delay the others for long.
inline constexpr std::int64_t kPiecesPerThread = 4;

/// Returns the number of pieces, of at least `least` units, for n units on this thread's pool.
inline std::int64_t pieces_of(std::int64_t n, std::int64_t least,
                              std::int64_t per_thread = kPiecesPerThread) {
  const int threads = thread_pool().threads();
  if (threads == 1) return 1;
  return std::clamp<std::int64_t>(n / std::max<std::int64_t>(1, least), 1, per_thread * threads);
}

/// Calls f(begin, end) on pieces of [0, n) of at least `least` elements that begin at multiples of
/// `unit`.
template <typename F>
void parallel_ranges(std::int64_t n, std::int64_t least, F f, std::int64_t unit = 1) {
  const std::int64_t units = (n + unit - 1) / unit, pieces = pieces_of(n, std::max(least, unit));
  thread_pool().run(n > 0 ? pieces : 0, [&](std::int64_t i) {
    f(units * i / pieces * unit, std::min(n, units * (i + 1) / pieces * unit));
  });
}

inline constexpr std::int64_t kLeastElements = 1 << 14;  // below, a thread costs more than it saves
inline constexpr std::int64_t kColumnUnit = 64;

template <typename F>
void parallel_elements(std::int64_t n, F f) {
  parallel_ranges(n, kLeastElements, f, 16);
}

/// Calls f on ranges of rows; each row has `columns` elements.
template <typename F>
void parallel_rows(std::int64_t rows, std::int64_t columns, F f) {
  parallel_ranges(
      rows, std::max<std::int64_t>(1, kLeastElements / std::max<std::int64_t>(1, columns)), f);
}

/// Calls f on ranges of columns, for sums over all rows. Each row's part is several cache lines
/// long: kernels read several vectors of a row before the next row.
template <typename F>
void parallel_columns(std::int64_t rows, std::int64_t columns, F f) {
  parallel_ranges(columns,
                  std::max<std::int64_t>(1, kLeastElements / std::max<std::int64_t>(1, rows)), f,
                  kColumnUnit);
}

}  // namespace strata
