// All products are of one form: rows of numbers times vectors. Keys and values are stored both ways
// round, so that vectors lie along keys for scores and along a head's elements for sums of values.
#include "strata/nn/kernels/attention_tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/attention_tiles.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "hwy/contrib/math/math-inl.h"
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Sums in registers: with 32 registers of 16 lanes 8 x 2, with 16 registers 6 x 2.
constexpr int kMostRows = HWY_MAX_BYTES >= 64 ? 8 : 6;
constexpr int kMostVectors = 2;

// Element (i, k) of the left operand is at i * row + k * depth.
struct LeftOperand {
  const float* data;
  std::int64_t row, depth;
};

// [rows, depth] x [depth, columns] -> [rows, columns]
struct TileProduct {
  LeftOperand a;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  std::int64_t rows, depth, columns;
};

template <int kRows, int kVectors, bool kAdd>
HWY_INLINE void multiply_part(const TileProduct& p, std::int64_t row, std::int64_t column) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector sums[kRows][kVectors];
  float* c = p.c + row * p.c_stride + column;
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = kAdd ? hn::LoadU(d, c + r * p.c_stride + v * lanes) : hn::Zero(d);
  const float* a = p.a.data + row * p.a.row;
  const float* b = p.b + column;
  for (std::int64_t k = 0; k < p.depth; ++k, a += p.a.depth, b += p.b_stride) {
    FloatVector right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const FloatVector left = hn::Set(d, a[r * p.a.row]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, c + r * p.c_stride + v * lanes);
}

// The rows after the last kMostRows.
template <int kRows, int kVectors, bool kAdd>
HWY_INLINE void multiply_rest(const TileProduct& p, std::int64_t row, std::int64_t column) {
  if constexpr (kRows > 0) {
    if (p.rows - row == kRows) return multiply_part<kRows, kVectors, kAdd>(p, row, column);
    multiply_rest<kRows - 1, kVectors, kAdd>(p, row, column);
  }
}

template <int kVectors, bool kAdd>
HWY_INLINE void multiply_columns(const TileProduct& p, std::int64_t column) {
  std::int64_t row = 0;
  for (; row + kMostRows <= p.rows; row += kMostRows)
    multiply_part<kMostRows, kVectors, kAdd>(p, row, column);
  multiply_rest<kMostRows - 1, kVectors, kAdd>(p, row, column);
}

// c = a b or, with kAdd, c += a b. Columns are a multiple of kTileUnit.
template <bool kAdd>
HWY_NOINLINE void multiply(const TileProduct& p) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t column = 0;
  for (; column + kMostVectors * lanes <= p.columns; column += kMostVectors * lanes)
    multiply_columns<kMostVectors, kAdd>(p, column);
  for (; column < p.columns; column += lanes) multiply_columns<1, kAdd>(p, column);
}

// Keys [begin, end) of the block that a row attends to.
struct Attended {
  std::int64_t begin, end;
};
HWY_INLINE Attended attended(const AttentionTile& tile, std::int64_t row) {
  const std::int64_t query = tile.query + row;
  const std::int64_t end = std::clamp<std::int64_t>(query + 1 - tile.key, 0, tile.block);
  if (tile.window == 0) return {0, end};
  return {std::clamp<std::int64_t>(query + 1 - tile.window - tile.key, 0, end), end};
}

HWY_INLINE void scores_of(const AttentionTile& tile, const PackedBlock& block, const float* q,
                          float* scores) {
  multiply<false>({.a = {q, tile_width(tile.width), 1},
                   .b = block.keys_across,
                   .b_stride = tile.block,
                   .c = scores,
                   .c_stride = tile.block,
                   .rows = tile.rows,
                   .depth = tile.width,
                   .columns = tile.block});
}

HWY_INLINE void mask(float* scores, const Attended& keys, std::int64_t block) {
  std::fill(scores, scores + keys.begin, kNone);
  std::fill(scores + keys.end, scores + block, kNone);
}

// exp(score - top) of masked scores is 0. NaN stays NaN, which Highway's Exp makes 0.
HWY_INLINE FloatVector exponential(FloatVector score, FloatVector top) {
  const FloatTag d;
  const FloatVector power = hn::Sub(score, top);
  const FloatVector least = hn::Set(d, -87.0f);
  const auto vanishes = hn::Lt(power, least);
  const FloatVector share = hn::IfThenZeroElse(vanishes, hn::Exp(d, hn::Max(power, least)));
  return hn::IfThenElse(hn::IsNaN(power), power, share);
}

// Replaces a row's scores by exp(score - top) for the new top; scales what the row has.
HWY_INLINE void soften(float* scores, std::int64_t block, std::int64_t width, float* y, float& top,
                       float& sum) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector most = hn::Set(d, kNone);
  for (std::int64_t j = 0; j < block; j += lanes) most = hn::Max(most, hn::LoadU(d, scores + j));
  const float before = top;
  top = std::max(before, hn::GetLane(hn::MaxOfLanes(d, most)));
  const FloatVector new_top = hn::Set(d, top);
  FloatVector total = hn::Zero(d);
  for (std::int64_t j = 0; j < block; j += lanes) {
    const FloatVector share = exponential(hn::LoadU(d, scores + j), new_top);
    total = hn::Add(total, share);
    hn::StoreU(share, d, scores + j);
  }
  const float added = hn::GetLane(hn::SumOfLanes(d, total));
  if (top == before) {
    sum += added;
    return;
  }
  const float scale = std::exp(before - top);
  sum = sum * scale + added;
  const FloatVector factor = hn::Set(d, scale);
  for (std::int64_t j = 0; j < width; j += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, y + j), factor), d, y + j);
}

void AttendTile(const AttentionTile& tile, const PackedBlock& block, const float* q, float* scores,
                const TileSums& sums) {
  const std::int64_t width = tile_width(tile.width);
  scores_of(tile, block, q, scores);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    float* of_row = scores + row * tile.block;
    const Attended keys = attended(tile, row);
    if (keys.begin == keys.end) {
      std::fill(of_row, of_row + tile.block, 0.0f);
      continue;
    }
    mask(of_row, keys, tile.block);
    soften(of_row, tile.block, width, sums.y + row * width, sums.top[row], sums.sum[row]);
  }
  multiply<true>({.a = {scores, tile.block, 1},
                  .b = block.values,
                  .b_stride = width,
                  .c = sums.y,
                  .c_stride = width,
                  .rows = tile.rows,
                  .depth = tile.block,
                  .columns = width});
}

// Replaces scores by the shares of keys, and products dy . v by the gradients of scores.
HWY_INLINE void gradients_of_scores(const AttentionTile& tile, const TileGradient& rows,
                                    float* scores, float* products) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    float *s = scores + row * tile.block, *p = products + row * tile.block;
    mask(s, attended(tile, row), tile.block);
    const FloatVector log_sum = hn::Set(d, rows.log_sum[row]), along = hn::Set(d, rows.along[row]);
    for (std::int64_t j = 0; j < tile.block; j += lanes) {
      const FloatVector share = exponential(hn::LoadU(d, s + j), log_sum);
      hn::StoreU(share, d, s + j);
      hn::StoreU(hn::Mul(share, hn::Sub(hn::LoadU(d, p + j), along)), d, p + j);
    }
  }
}

// sum += the transpose of `shares` times x, for the block's keys.
HWY_INLINE void add_over_rows(const AttentionTile& tile, const float* shares, const float* x,
                              float* part, const RowSums& sum, std::int64_t keys) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = tile_width(tile.width);
  multiply<false>({.a = {shares, 1, tile.block},
                   .b = x,
                   .b_stride = width,
                   .c = part,
                   .c_stride = width,
                   .rows = keys,
                   .depth = tile.rows,
                   .columns = width});
  for (std::int64_t key = 0; key < keys; ++key) {
    const float* from = part + key * width;
    float* to = sum.data + key * sum.stride;
    std::int64_t j = 0;
    for (; j + lanes <= tile.width; j += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, from + j)), d, to + j);
    for (; j < tile.width; ++j) to[j] += from[j];
  }
}

void AttendTileGradient(const AttentionTile& tile, const PackedBlock& block,
                        const TileGradient& rows, const TileScratch& scratch, float* dq,
                        const KeyGradients& gradients) {
  const std::int64_t width = tile_width(tile.width);
  scores_of(tile, block, rows.q, scratch.scores);
  multiply<false>({.a = {rows.dy, width, 1},
                   .b = block.values_across,
                   .b_stride = tile.block,
                   .c = scratch.products,
                   .c_stride = tile.block,
                   .rows = tile.rows,
                   .depth = tile.width,
                   .columns = tile.block});
  gradients_of_scores(tile, rows, scratch.scores, scratch.products);
  add_over_rows(tile, scratch.scores, rows.dy, scratch.part, gradients.dv, gradients.keys);
  add_over_rows(tile, scratch.products, rows.q, scratch.part, gradients.dk, gradients.keys);
  multiply<true>({.a = {scratch.products, tile.block, 1},
                  .b = block.keys,
                  .b_stride = width,
                  .c = dq,
                  .c_stride = width,
                  .rows = tile.rows,
                  .depth = tile.block,
                  .columns = width});
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(AttendTile);
HWY_EXPORT(AttendTileGradient);

void attend_tile(const AttentionTile& tile, const PackedBlock& block, const float* q, float* scores,
                 const TileSums& sums) {
  HWY_DYNAMIC_DISPATCH(AttendTile)(tile, block, q, scores, sums);
}
void attend_tile_gradient(const AttentionTile& tile, const PackedBlock& block,
                          const TileGradient& rows, const TileScratch& scratch, float* dq,
                          const KeyGradients& gradients) {
  HWY_DYNAMIC_DISPATCH(AttendTileGradient)(tile, block, rows, scratch, dq, gradients);
}
}  // namespace strata::kernels
#endif
