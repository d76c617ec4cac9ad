/// Shares work among the intra-op threads in pieces whose edges don't change bits.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

namespace strata {

/// Calls f(begin, end) on pieces of [0, n) that begin at multiples of 16.
template <typename F>
void parallel_elements(std::int64_t n, F f) {
  constexpr std::int64_t kPiece = 16, kGrain = 1 << 14;
  at::parallel_for(
      0, (n + kPiece - 1) / kPiece, kGrain / kPiece,
      [&](std::int64_t begin, std::int64_t end) { f(begin * kPiece, std::min(end * kPiece, n)); });
}

/// Calls f(begin, end) on ranges of rows, each row `columns` elements.
template <typename F>
void parallel_rows(std::int64_t rows, std::int64_t columns, F f) {
  at::parallel_for(0, rows, std::max<std::int64_t>(1, (1 << 14) / columns), f);
}

/// Calls f(begin, end) on ranges of columns that begin at multiples of 16, for sums over all rows.
template <typename F>
void parallel_columns(std::int64_t rows, std::int64_t columns, F f) {
  constexpr std::int64_t kPiece = 16;
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / (kPiece * rows));
  at::parallel_for(0, (columns + kPiece - 1) / kPiece, grain,
                   [&](std::int64_t begin, std::int64_t end) {
                     f(begin * kPiece, std::min(end * kPiece, columns));
                   });
}

}  // namespace strata
