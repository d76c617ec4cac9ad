/// Adds up products of some rows with columns that were packed for them: each piece of the columns
/// is turned once, into the first cache, and read from there by all rows. Included once per Highway
/// target, after few_rows-inl.h.
#include <algorithm>
#include <cstdint>

#if defined(STRATA_PACKED_COLUMNS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_PACKED_COLUMNS_INL_H
#undef STRATA_PACKED_COLUMNS_INL_H
#else
#define STRATA_PACKED_COLUMNS_INL_H
#endif

#include "hwy/highway.h"
#include "strata/nn/kernels/decoding.h"
#include "strata/nn/kernels/few_rows-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

inline constexpr int kPackedGroups = 2;
inline constexpr std::int64_t kPacked = kPackedGroups * kGroup;  // columns
inline constexpr std::int64_t kMostTileRows = 6;                 // whose sums fit the registers

// y[r] = y[r], or `first` if it is given, + the sums of row r with packed columns.
template <int kRows>
HWY_INLINE void add_packed(const float* x, std::int64_t x_stride, const float* packed,
                           std::int64_t terms, const float* first, float* y,
                           std::int64_t y_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  Group sums[kRows][kPackedGroups];
  for (auto& row : sums)
    for (Group& sum : row) sum = hn::Zero(d);
  for (std::int64_t k = 0; k < terms; ++k) {
    Group columns[kPackedGroups];
    for (int g = 0; g < kPackedGroups; ++g)
      columns[g] = hn::Load(d, packed + k * kPacked + g * kGroup);
    for (int r = 0; r < kRows; ++r) {
      const Group factor = hn::Set(d, x[r * x_stride + k]);
      for (int g = 0; g < kPackedGroups; ++g)
        sums[r][g] = hn::MulAdd(factor, columns[g], sums[r][g]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kPackedGroups; ++g) {
      float* to = y + r * y_stride + g * kGroup;
      const Group before = first ? hn::LoadU(d, first + g * kGroup) : hn::LoadU(d, to);
      hn::StoreU(hn::Add(before, sums[r][g]), d, to);
    }
}

// All rows, in tiles of about the same size.
HWY_INLINE void add_packed_rows(const float* x, std::int64_t rows, std::int64_t x_stride,
                                const float* packed, std::int64_t terms, const float* first,
                                float* y, std::int64_t y_stride) {
  const std::int64_t tiles = (rows + kMostTileRows - 1) / kMostTileRows;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t begin = rows * tile / tiles, end = rows * (tile + 1) / tiles;
    const float* from = x + begin * x_stride;
    float* to = y + begin * y_stride;
    switch (end - begin) {
      case 3:
        add_packed<3>(from, x_stride, packed, terms, first, to, y_stride);
        break;
      case 4:
        add_packed<4>(from, x_stride, packed, terms, first, to, y_stride);
        break;
      case 5:
        add_packed<5>(from, x_stride, packed, terms, first, to, y_stride);
        break;
      default:
        add_packed<6>(from, x_stride, packed, terms, first, to, y_stride);
        break;
    }
  }
}

// `rows`: more than four, at most kMostFewRows.
template <typename T>
HWY_INLINE void multiply_packed(const float* x, std::int64_t rows, std::int64_t x_stride,
                                std::int64_t in, const T* weight, std::int64_t out,
                                const float* bias, float* y, std::int64_t y_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  HWY_ALIGN float packed[kLongestPiece * kPacked];
  HWY_ALIGN float last[kMostFewRows * kPacked];  // of fewer than kPacked columns
  const std::int64_t piece = sum_piece(in);
  for (std::int64_t c = 0; c < out; c += kPacked) {
    const std::int64_t count = std::min(kPacked, out - c);
    const T* columns[kPacked];
    for (std::int64_t i = 0; i < kPacked; ++i)
      columns[i] = weight + (c + std::min(i, count - 1)) * in;
    HWY_ALIGN float first[kPacked];
    std::fill_n(first, kPacked, -0.0f);  // which keeps the bits of any summand
    if (bias) std::copy_n(bias + c, count, first);
    float* to = count < kPacked ? last : y + c;
    const std::int64_t to_stride = count < kPacked ? kPacked : y_stride;
    for (std::int64_t k = 0; k < in; k += piece) {
      const std::int64_t terms = std::min(piece, in - k);
      for (int g = 0; g < kPackedGroups; ++g)
        for_terms(columns + g * kGroup, k, terms, kPacked * in,
                  [&](std::int64_t term, const Group(&v)[4], std::int64_t count) {
                    for (std::int64_t i = 0; i < count; ++i)
                      hn::Store(v[i], d, packed + (term - k + i) * kPacked + g * kGroup);
                  });
      add_packed_rows(x + k, rows, x_stride, packed, terms, k == 0 ? first : nullptr, to,
                      to_stride);
    }
    if (count < kPacked)
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(last + r * kPacked, count, y + r * y_stride + c);
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
