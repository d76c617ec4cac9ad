/// Adds up products of few rows with several columns at once. Included once per Highway target.
#include <algorithm>
#include <cstdint>

#if defined(STRATA_FEW_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_FEW_ROWS_INL_H
#undef STRATA_FEW_ROWS_INL_H
#else
#define STRATA_FEW_ROWS_INL_H
#endif

#include "hwy/highway.h"
#include "strata/nn/kernels/decoding.h"
#include "strata/nn/kernels/element-inl.h"

#if HWY_TARGET != HWY_SCALAR  // which has single lanes; g++ compiles it
HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

using Quad = hwy::HWY_NAMESPACE::FixedTag<float, 4>;
using Lanes4or8 = hwy::HWY_NAMESPACE::CappedTag<float, 8>;
using Group = hwy::HWY_NAMESPACE::Vec<Lanes4or8>;
inline constexpr std::int64_t kGroup = hwy::HWY_NAMESPACE::MaxLanes(Lanes4or8());

// Four elements of one column in each block of 128 bits: columns `a` and, in the upper block, `b`.
template <typename T>
HWY_INLINE Group load_columns(const T* a, [[maybe_unused]] const T* b) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
#if HWY_MAX_BYTES >= 32
  return hn::Combine(d, load(Quad(), b), load(Quad(), a));
#else
  return load(d, a);
#endif
}

// Turns four vectors of four elements a column into four vectors of one element of all columns.
HWY_INLINE void transpose(Group (&v)[4]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  const hn::Repartition<double, Lanes4or8> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, v[0], v[1]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[0], v[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, v[2], v[3]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  v[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}

// The sums of kRows rows with kGroups groups of columns that begin at `columns`, `terms` products
// each. Brings the elements `ahead` of these into a cache: the columns are too many streams for a
// processor to predict.
template <int kRows, int kGroups, typename T>
HWY_INLINE void add_piece(const float* x, std::int64_t x_stride, const T* const* columns,
                          std::int64_t begin, std::int64_t terms, std::int64_t ahead,
                          Group (&sums)[kRows][kGroups]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  for (auto& row : sums)
    for (Group& sum : row) sum = hn::Zero(d);
  const auto step = [&](const T* const* from, std::int64_t at, std::int64_t k, std::int64_t count) {
    for (int g = 0; g < kGroups; ++g) {
      Group v[4];
      for (int c = 0; c < 4; ++c)
        v[c] = load_columns(from[g * kGroup + c] + at, from[g * kGroup + (4 + c) % kGroup] + at);
      transpose(v);
      for (std::int64_t i = 0; i < count; ++i)
        for (int r = 0; r < kRows; ++r)
          sums[r][g] = hn::MulAdd(hn::Set(d, x[r * x_stride + k + i]), v[i], sums[r][g]);
    }
  };
  std::int64_t k = begin;
  const std::int64_t end = begin + terms;
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (; k + kLine <= end; k += kLine) {
    for (int c = 0; c < kGroups * kGroup; ++c) __builtin_prefetch(columns[c] + k + ahead, 0, 2);
    for (std::int64_t at = k; at < k + kLine; at += 4) step(columns, at, at, 4);
  }
  for (; k + 4 <= end; k += 4) step(columns, k, k, 4);
  if (k == end) return;
  T last[kGroups * kGroup][4] = {};  // reading on might leave the weight
  const T* ends[kGroups * kGroup];
  for (int c = 0; c < kGroups * kGroup; ++c) {
    std::copy_n(columns[c] + k, end - k, last[c]);
    ends[c] = last[c];
  }
  step(ends, 0, k, end - k);
}

// Columns [0, count) of at most kGroups groups.
template <int kRows, int kGroups, typename T>
HWY_INLINE void multiply_groups(const float* x, std::int64_t x_stride, std::int64_t in,
                                const T* weight, std::int64_t count, const float* bias, float* y,
                                std::int64_t y_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  const T* columns[kGroups * kGroup];
  for (std::int64_t c = 0; c < kGroups * kGroup; ++c)
    columns[c] = weight + std::min(c, count - 1) * in;
  HWY_ALIGN float result[kRows][kGroups * kGroup];
  const std::int64_t piece = sum_piece(in);
  for (std::int64_t k = 0; k < in; k += piece) {
    Group sums[kRows][kGroups];
    add_piece<kRows, kGroups>(x, x_stride, columns, k, std::min(piece, in - k),
                              kGroups * kGroup * in, sums);
    for (int r = 0; r < kRows; ++r)
      for (int g = 0; g < kGroups; ++g) {
        float* to = result[r] + g * kGroup;
        if (k > 0) {
          sums[r][g] = hn::Add(hn::Load(d, to), sums[r][g]);
        } else if (bias) {
          HWY_ALIGN float first[kGroup] = {};
          std::copy_n(bias + g * kGroup, std::clamp<std::int64_t>(count - g * kGroup, 0, kGroup),
                      first);
          sums[r][g] = hn::Add(hn::Load(d, first), sums[r][g]);
        }
        hn::Store(sums[r][g], d, to);
      }
  }
  for (int r = 0; r < kRows; ++r) std::copy_n(result[r], count, y + r * y_stride);
}

template <int kRows, int kGroups, typename T>
HWY_INLINE void multiply_columns(const float* x, std::int64_t x_stride, std::int64_t in,
                                 const T* weight, std::int64_t out, const float* bias, float* y,
                                 std::int64_t y_stride) {
  constexpr std::int64_t kStep = kGroups * kGroup;
  for (std::int64_t c = 0; c < out; c += kStep)
    multiply_groups<kRows, kGroups>(x, x_stride, in, weight + c * in, std::min(kStep, out - c),
                                    bias ? bias + c : nullptr, y + c, y_stride);
}

template <typename T>
HWY_INLINE void multiply_rows(const float* x, std::int64_t rows, std::int64_t x_stride,
                              std::int64_t in, const T* weight, std::int64_t out, const float* bias,
                              float* y, std::int64_t y_stride) {
  switch (rows) {
    case 1:
      return multiply_columns<1, 4>(x, x_stride, in, weight, out, bias, y, y_stride);
    case 2:
      return multiply_columns<2, 2>(x, x_stride, in, weight, out, bias, y, y_stride);
    case 3:
      return multiply_columns<3, 2>(x, x_stride, in, weight, out, bias, y, y_stride);
    default:
      return multiply_columns<4, 2>(x, x_stride, in, weight, out, bias, y, y_stride);
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
