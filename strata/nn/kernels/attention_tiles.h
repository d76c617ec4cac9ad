/// Attends from the queries of a tile to one block of keys after another, of one head.
///
/// A row's numbers do not depend on the other rows of its tile, nor on keys that it does not attend
/// to, if these are finite. The keys of a block are added up in ascending order.
///
/// Source   Milakov and Gimelshein 2018 (running maximum); Dao et al. 2022 (gradient by tiles).
/// Shapes   row-major; fp32. W is the width of a head rounded up to kTileUnit: elements of q, dy,
///          keys and values after a head's width are zeros.
/// Threads  any.
#pragma once

#include <cstdint>

namespace strata::kernels {

/// Blocks have a multiple of so many keys.
inline constexpr std::int64_t kTileUnit = 16;
constexpr std::int64_t tile_width(std::int64_t width) {
  return (width + kTileUnit - 1) / kTileUnit * kTileUnit;
}

/// The queries of a tile, and a block of keys.
struct AttentionTile {
  std::int64_t rows;       ///< queries
  std::int64_t block;      ///< keys
  std::int64_t width;      ///< of a head
  std::int64_t query = 0;  ///< the first query's token; it attends to no later one
  std::int64_t key = 0;    ///< the first key's token
  std::int64_t window =
      0;  ///< tokens that a query attends to, its own the last; 0: all earlier ones
};

/// A block of keys and values; those after the end of a text are zeros.
struct PackedBlock {
  const float *keys, *values;                ///< [block, W]
  const float *keys_across, *values_across;  ///< [width, block]
};

/// What the blocks so far have added up to.
struct TileSums {
  float* y;    ///< [rows, W], not yet divided by `sum`
  float* top;  ///< [rows]: the largest score; at first -infinity
  float* sum;  ///< [rows] of exp(score - top)
};

/// Adds a block; `scores` [rows, block] is overwritten. q has the scores' scale.
void attend_tile(const AttentionTile& tile, const PackedBlock& block, const float* q, float* scores,
                 const TileSums& sums);

/// What a gradient reads of the queries.
struct TileGradient {
  const float *q, *dy;   ///< [rows, W]; q has the scores' scale
  const float* log_sum;  ///< [rows]
  const float* along;    ///< [rows]: y . dy
};

/// Sums of a block's keys: rows that begin every `stride` elements.
struct RowSums {
  float* data;
  std::int64_t stride;
};
struct KeyGradients {
  RowSums dk, dv;
  std::int64_t keys;  ///< those that the text has
};
/// [rows, block], [rows, block] and [block, W]; overwritten.
struct TileScratch {
  float *scores, *products, *part;
};

/// Adds a block's gradients. dq [rows, W] lacks the scores' scale.
void attend_tile_gradient(const AttentionTile& tile, const PackedBlock& block,
                          const TileGradient& rows, const TileScratch& scratch, float* dq,
                          const KeyGradients& gradients);

}  // namespace strata::kernels
