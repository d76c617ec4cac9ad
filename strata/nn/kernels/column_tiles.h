/// Sums the columns of a matrix in an order that depends only on its shape; for .cu files.
///
/// Rows are cut into tiles of kColumnTile. A block processes a tile and as many columns as a warp
/// reads at once: warp w adds rows w, w + 8, ... of the tile; the eight sums are added as (w, w +
/// 4), then 2, then 1. The tiles' sums are a matrix, which is summed once more in the same way, as
/// one tile.
///
/// Cost  reads each element once, and 8 bytes per tile and column.
#pragma once

#include <algorithm>

#include "strata/device/simt/simt_vector.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {

/// Terms: the values to sum. `Element`, `kSums`, lies_whole(): whether its arrays are aligned, and
/// add(row, column, left, sums), which adds the terms of the vector at `column` to kSums Floats.
template <typename Terms>
struct ColumnTiles {
  static constexpr int kWarps = 8, kThreads = kWarps * simt::kWarp, kSums = Terms::kSums;
  static constexpr int kVector = simt::kWide<typename Terms::Element>;
  static constexpr int kColumns = simt::kWarp * kVector;  // per block
  struct Shared {
    float sums[kSums][kWarps][kColumns];
  };

  Terms terms;
  std::int64_t rows, columns, height;  // height: rows per tile
  std::int64_t strips;                 // blocks per tile
  float* to[kSums];                    // [tiles, columns] each
  float divisor;                       // divides the sums; 0: they are added to `to`

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block, Shared& shared) const {
    const std::int64_t tile = block.index() / strips;
    const std::int64_t first = (block.index() - tile * strips) * kColumns;
    block.each([&](int thread) {
      const int warp = thread / simt::kWarp, within = thread % simt::kWarp * kVector;
      const std::int64_t column = first + within;
      simt::Floats<kVector> sums[kSums];
      STRATA_UNROLL
      for (int s = 0; s < kSums; ++s) sums[s] = simt::zeros<kVector>();
      const std::int64_t begin = tile * height, end = simt::least(begin + height, rows);
      const auto add_rows = [&](auto left) {
        STRATA_UNROLL_4  // reads of four rows in flight
            for (std::int64_t row = begin + warp; row < end; row += kWarps)
                terms.add(row, column, left, sums);
      };
      if (column < columns && columns % kVector == 0 && terms.lies_whole()) {
        add_rows(simt::Whole(columns - column));
      } else if (column < columns) {
        add_rows(columns - column);
      }
      STRATA_UNROLL
      for (int s = 0; s < kSums; ++s) {
        STRATA_UNROLL
        for (int k = 0; k < kVector; ++k) shared.sums[s][warp][within + k] = sums[s][k];
      }
    });
    block.each([&](int thread) {
      if (thread >= kColumns || first + thread >= columns) return;
      STRATA_UNROLL
      for (int s = 0; s < kSums; ++s) {
        float of_warp[kWarps];
        STRATA_UNROLL
        for (int warp = 0; warp < kWarps; ++warp) of_warp[warp] = shared.sums[s][warp][thread];
        const float total = simt::tree_sum(of_warp);
        float& sum = to[s][tile * columns + first + thread];
        sum = divisor == 0 ? sum + total : total / divisor;
      }
    });
  }
};

/// The elements themselves.
template <typename T>
struct ColumnValues {
  using Element = T;
  static constexpr int kSums = 1;
  const T* x;
  std::int64_t columns;

  STRATA_DEVICE bool lies_whole() const { return simt::lie_whole(x); }
  template <typename Left>
  STRATA_DEVICE void add(std::int64_t row, std::int64_t column, Left left,
                         simt::Floats<simt::kWide<T>> (&sums)[kSums]) const {
    const auto more = simt::load<simt::kWide<T>>(x + row * columns + column, left);
    STRATA_UNROLL
    for (int k = 0; k < simt::kWide<T>; ++k) sums[0][k] += more[k];
  }
};

/// to[s][c] = sum of the terms / divisor; divisor 0: += sum.
template <typename Terms>
void sum_columns(const Terms& terms, std::int64_t rows, std::int64_t columns,
                 float* const (&to)[Terms::kSums], float divisor, float* workspace, void* stream) {
  using Tiles = ColumnTiles<Terms>;
  const std::int64_t tiles = simt::blocks_for(rows, kColumnTile);
  const std::int64_t strips = simt::blocks_for(columns, Tiles::kColumns);
  Tiles first{terms, rows, columns, kColumnTile, strips, {}, 1};
  for (int s = 0; s < Tiles::kSums; ++s) first.to[s] = workspace + s * tiles * columns;
  if (tiles <= 1) {
    std::copy_n(to, Tiles::kSums, first.to);
    first.divisor = divisor;
  }
  simt::launch(first, std::max<std::int64_t>(tiles, 1) * strips, stream);
  if (tiles <= 1) return;
  using Second = ColumnTiles<ColumnValues<float>>;
  for (int s = 0; s < Tiles::kSums; ++s) {
    const std::int64_t blocks = simt::blocks_for(columns, Second::kColumns);
    simt::launch(Second{{first.to[s], columns}, tiles, columns, tiles, blocks, {to[s]}, divisor},
                 blocks, stream);
  }
}

}  // namespace strata::cuda
