/// Adds up products of few rows with a group of columns at once. Included once per Highway target.
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

// Calls use(term, v, count) for terms [begin, begin + terms) of a group's columns in ascending
// order, four at a time: v[i] holds the elements of term + i. Brings the elements `ahead` of these
// into a cache: the columns are too many streams for a processor to predict. There is one group of
// columns: the lines of more would share few sets of the first cache, if `in` is a power of two.
template <typename T, typename Use>
HWY_INLINE void for_terms(const T* const* columns, std::int64_t begin, std::int64_t terms,
                          std::int64_t ahead, Use use) {
  const auto step = [&](const T* const* from, std::int64_t at, std::int64_t term,
                        std::int64_t count) {
    Group v[4];
    for (int c = 0; c < 4; ++c) v[c] = load_columns(from[c] + at, from[(4 + c) % kGroup] + at);
    transpose(v);
    use(term, v, count);
  };
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const std::int64_t end = begin + terms;
  std::int64_t term = begin;
  for (; term + kLine <= end; term += kLine) {
    for (int c = 0; c < kGroup; ++c) __builtin_prefetch(columns[c] + term + ahead, 0, 2);
    for (std::int64_t at = term; at < term + kLine; at += 4) step(columns, at, at, 4);
  }
  for (; term + 4 <= end; term += 4) step(columns, term, term, 4);
  if (term == end) return;
  T last[kGroup][4] = {};  // reading on might leave the weight
  const T* ends[kGroup];
  for (int c = 0; c < kGroup; ++c) {
    std::copy_n(columns[c] + term, end - term, last[c]);
    ends[c] = last[c];
  }
  step(ends, 0, term, end - term);
}

// At most kGroup columns of kRows rows.
template <int kRows, typename T>
HWY_INLINE void multiply_group(const float* x, std::int64_t x_stride, std::int64_t in,
                               const T* weight, std::int64_t count, const float* bias, float* y,
                               std::int64_t y_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  const T* columns[kGroup];
  for (std::int64_t c = 0; c < kGroup; ++c) columns[c] = weight + std::min(c, count - 1) * in;
  HWY_ALIGN float first[kGroup];
  std::fill_n(first, kGroup, -0.0f);  // which keeps the bits of any summand
  if (bias) std::copy_n(bias, count, first);
  Group total[kRows];
  for (Group& row : total) row = hn::Load(d, first);
  const std::int64_t piece = sum_piece(in);
  for (std::int64_t k = 0; k < in; k += piece) {
    Group sums[kRows];
    for (Group& row : sums) row = hn::Zero(d);
    for_terms(columns, k, std::min(piece, in - k), kGroup * in,
              [&](std::int64_t term, const Group(&v)[4], std::int64_t terms) {
                for (std::int64_t i = 0; i < terms; ++i)
                  for (int r = 0; r < kRows; ++r)
                    sums[r] = hn::MulAdd(hn::Set(d, x[r * x_stride + term + i]), v[i], sums[r]);
              });
    for (int r = 0; r < kRows; ++r) total[r] = hn::Add(total[r], sums[r]);
  }
  for (int r = 0; r < kRows; ++r) {
    hn::Store(total[r], d, first);
    std::copy_n(first, count, y + r * y_stride);
  }
}

template <int kRows, typename T>
HWY_INLINE void multiply_columns(const float* x, std::int64_t x_stride, std::int64_t in,
                                 const T* weight, std::int64_t out, const float* bias, float* y,
                                 std::int64_t y_stride) {
  for (std::int64_t c = 0; c < out; c += kGroup)
    multiply_group<kRows>(x, x_stride, in, weight + c * in, std::min(kGroup, out - c),
                          bias ? bias + c : nullptr, y + c, y_stride);
}

// At most kRegisterRows rows.
template <typename T>
HWY_INLINE void multiply_rows(const float* x, std::int64_t rows, std::int64_t x_stride,
                              std::int64_t in, const T* weight, std::int64_t out, const float* bias,
                              float* y, std::int64_t y_stride) {
  switch (rows) {
    case 1:
      return multiply_columns<1>(x, x_stride, in, weight, out, bias, y, y_stride);
    case 2:
      return multiply_columns<2>(x, x_stride, in, weight, out, bias, y, y_stride);
    case 3:
      return multiply_columns<3>(x, x_stride, in, weight, out, bias, y, y_stride);
    default:
      return multiply_columns<4>(x, x_stride, in, weight, out, bias, y, y_stride);
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
