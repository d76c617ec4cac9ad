/// Says where the columns of a product lie whose weight has 8 or 4 bits (quantised_rows.h).
///
/// A row of the weight is a column of the product. Tiles of kTileColumns columns follow each other.
///
/// kInt8    a tile is its scales, fp32, then for each term one byte a column.
/// kInt4    a tile is its groups of kInt4Terms terms. A group is the scales and the minima of its
///          columns, fp16, then for each term 8 bytes, which have columns 0 to 7 in their lower
///          halves and 8 to 15 in their upper ones.
///
/// The last tile has room for the columns that do not exist.
///
/// Threads  any; distinct tiles may be written in parallel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "strata/nn/kernels/quantised_rows.h"

namespace strata::kernels {

inline constexpr std::int64_t kTileColumns = 16;
inline constexpr std::int64_t kInt4Bytes = kTileColumns / 2;   ///< of a term
inline constexpr std::int64_t kInt4Header = kTileColumns * 4;  ///< bytes of scales and minima
inline constexpr std::int64_t kInt4GroupBytes = kInt4Header + kInt4Terms * kInt4Bytes;

/// The first byte of a term in its tile.
constexpr std::int64_t int8_place(std::int64_t term) { return kTileColumns * (4 + term); }
constexpr std::int64_t int4_place(std::int64_t term) {
  return term / kInt4Terms * kInt4GroupBytes + kInt4Header + term % kInt4Terms * kInt4Bytes;
}

/// Bytes of a tile with columns of `in` terms: a multiple of kTileColumns.
constexpr std::int64_t tile_bytes(QuantisedType type, std::int64_t in) {
  if (type == QuantisedType::kInt8) return int8_place(in);
  return (in + kInt4Terms - 1) / kInt4Terms * kInt4Header + (in + 1) / 2 * kTileColumns;
}

/// Bytes of a weight [out, in].
constexpr std::int64_t quantised_bytes(QuantisedType type, std::int64_t out, std::int64_t in) {
  return (out + kTileColumns - 1) / kTileColumns * tile_bytes(type, in);
}

/// Terms [begin, begin + count) of a row, as terms from `to` on of a column. begin - to is a
/// multiple of kInt4Terms for kInt4.
struct QuantisedTerms {
  const QuantisedRow& row;
  std::int64_t begin, to, count;
};

/// Writes terms of a column, and the scales of their groups, to a weight whose columns have `in`
/// terms.
void put(std::byte* tiles, std::int64_t in, std::int64_t column, const QuantisedTerms& terms);

}  // namespace strata::kernels
