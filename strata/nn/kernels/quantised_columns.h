/// Keeps the weight of a product as signed 8-bit numbers with one scale per column of the output,
/// and multiplies few rows by it.
///
/// A row [in] of the weight becomes q = round(w / scale), to nearest even, with scale = max|w| /
/// 127; its values are scale * q, rounded to fp32 once. A row of zeros has scale 0. A row with a
/// number that is not finite has scale NaN, so all its values are NaN. Products have the bits of
/// multiply_few() by these values.
///
/// Tiles of kTileColumns rows of the weight follow each other. A tile is its scales, fp32, then for
/// each of the `in` terms one byte per column, so a product reads memory in order. The columns of
/// the last tile that do not exist have scale 0.
///
/// Threads  any; distinct columns may be written in parallel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "strata/nn/kernels/decoding.h"

namespace strata::kernels {

inline constexpr std::int64_t kTileColumns = 16;
inline constexpr std::int64_t kMostInt8 = 127;

constexpr std::int64_t int8_tile_bytes(std::int64_t in) {
  return kTileColumns * (static_cast<std::int64_t>(sizeof(float)) + in);
}

/// Bytes of a weight [out, in]: a multiple of 64 if `in` is one of 4.
constexpr std::int64_t int8_bytes(std::int64_t out, std::int64_t in) {
  return (out + kTileColumns - 1) / kTileColumns * int8_tile_bytes(in);
}

/// Rounds a row of a weight to q [in]. Returns its scale.
float quantise_row(const float* row, std::int64_t in, std::int8_t* q);

/// Columns of a product: the first tile of them, aligned to 4 bytes.
struct Int8Columns {
  const std::byte* tiles;
  std::int64_t out;
  const float* bias;  ///< [out]; null: none
};

/// Writes `count` terms, from `term` on, of a column with its scale.
void put_int8(std::byte* tiles, std::int64_t in, std::int64_t column, float scale,
              const std::int8_t* q, std::int64_t term, std::int64_t count);

/// weight [columns.out, in] = the values of the columns.
void dequantise(const Int8Columns& columns, std::int64_t in, float* weight);

/// y[r][o] = bias[o] + x[r] . values of column o, for at most kMostFewRows rows.
void multiply_int8(const FewRows& x, const Int8Columns& columns, float* y, std::int64_t y_stride);

}  // namespace strata::kernels
