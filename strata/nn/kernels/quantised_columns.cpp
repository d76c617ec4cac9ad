// A tile has its bytes in the order of terms, so they become fp32 values in registers without a
// transposition. Products of one to four rows compute several groups of columns at once, because
// each addition to the sum of a group waits for the one before.
#include "strata/nn/kernels/int8_columns.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

// As in few_rows.cpp, whose bits these products have.
#define HWY_DISABLED_TARGETS (HWY_AVX3 | HWY_AVX3_DL | HWY_SSE4 | HWY_SSSE3)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/int8_columns.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/few_rows-inl.h"
#include "strata/nn/kernels/packed_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

// A magnitude's bits order like the magnitude, infinities and then NaN last.
HWY_INLINE std::int32_t largest_magnitude(const float* row, std::int64_t in) {
  std::int32_t most = 0;
  for (std::int64_t i = 0; i < in; ++i)
    most = std::max(most, std::bit_cast<std::int32_t>(row[i]) & 0x7FFFFFFF);
  return most;
}

float QuantiseRow(const float* row, std::int64_t in, std::int8_t* q) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr std::int32_t kInfinity = 0x7F800000;
  constexpr auto kMost = static_cast<float>(kMostInt8);
  const std::int32_t largest = largest_magnitude(row, in);
  const float scale = largest >= kInfinity ? std::numeric_limits<float>::quiet_NaN()
                                           : std::bit_cast<float>(largest) / kMost;
  if (!(scale > 0)) {
    std::fill_n(q, in, std::int8_t{0});
    return scale;
  }
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<std::int32_t, decltype(d)> whole;
  const hn::Rebind<std::int16_t, decltype(d)> half;
  const hn::Rebind<std::int8_t, decltype(d)> byte;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto divisor = hn::Set(d, scale), most = hn::Set(d, kMost), least = hn::Neg(most);
  const auto round = [&](const float* from, std::int8_t* to) {
    // The quotient exceeds 127 only for scales that are so small that they lost digits.
    const auto x = hn::Min(hn::Max(hn::Div(hn::LoadU(d, from), divisor), least), most);
    const auto rounded = hn::ConvertTo(whole, hn::Round(x));
    hn::StoreU(hn::DemoteTo(byte, hn::DemoteTo(half, rounded)), byte, to);
  };
  std::int64_t i = 0;
  for (; i + lanes <= in; i += lanes) round(row + i, q + i);
  if (i < in) {
    float last[4] = {};
    std::int8_t rounded[4];
    std::copy_n(row + i, in - i, last);
    round(last, rounded);
    std::copy_n(rounded, in - i, q + i);
  }
  return scale;
}

HWY_INLINE const float* scales_of(const std::byte* tile) {
  return reinterpret_cast<const float*>(tile);
}

HWY_INLINE const std::int8_t* bytes_of_tile(const std::byte* tile) {
  return reinterpret_cast<const std::int8_t*>(tile + kTileColumns * sizeof(float));
}

#if HWY_TARGET == HWY_SCALAR
void Dequantise(const Int8Columns& columns, std::int64_t in, float* weight) {
  for (std::int64_t o = 0; o < columns.out; ++o) {
    const std::byte* tile = columns.tiles + o / kTileColumns * int8_tile_bytes(in);
    const std::int64_t lane = o % kTileColumns;
    for (std::int64_t k = 0; k < in; ++k)
      weight[o * in + k] =
          scales_of(tile)[lane] * static_cast<float>(bytes_of_tile(tile)[k * kTileColumns + lane]);
  }
}

// No kernel, as in few_rows.cpp.
void MultiplyInt8(const FewRows& x, const Int8Columns& columns, float* y, std::int64_t y_stride) {
  for (std::int64_t row = 0; row < x.rows; ++row)
    for (std::int64_t o = 0; o < columns.out; ++o)
      y[row * y_stride + o] = std::numeric_limits<float>::quiet_NaN();
}
#else

inline constexpr std::int64_t kTileGroups = kTileColumns / kGroup;

// The values of one term of a group of columns.
HWY_INLINE Group values_of(const std::int8_t* q, Group scale) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  const hn::Rebind<std::int32_t, Lanes4or8> whole;
  const hn::Rebind<std::int8_t, Lanes4or8> byte;
  return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(whole, hn::LoadU(byte, q))), scale);
}

// Writes four elements of each column of a group, which transpose() made of four terms.
HWY_INLINE void store_columns(const Group (&v)[4], std::int64_t in, float* weight) {
  namespace hn = hwy::HWY_NAMESPACE;
  for (std::int64_t c = 0; c < 4; ++c) {
#if HWY_MAX_BYTES >= 32
    hn::StoreU(hn::LowerHalf(Quad(), v[c]), Quad(), weight + c * in);
    hn::StoreU(hn::UpperHalf(Quad(), v[c]), Quad(), weight + (c + 4) * in);
#else
    hn::StoreU(v[c], Quad(), weight + c * in);
#endif
  }
}

HWY_INLINE void dequantise_group(const std::byte* tile, std::int64_t group, std::int64_t in,
                                 std::int64_t count, float* weight) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Group scale = hn::LoadU(Lanes4or8(), scales_of(tile) + group * kGroup);
  const std::int8_t* q = bytes_of_tile(tile) + group * kGroup;
  for (std::int64_t k = 0; k < in; k += 4) {
    Group v[4];
    for (std::int64_t i = 0; i < 4; ++i)
      v[i] = values_of(q + std::min(k + i, in - 1) * kTileColumns, scale);
    transpose(v);
    if (count == kGroup && k + 4 <= in) {
      store_columns(v, in, weight + k);
      continue;
    }
    float last[kGroup * 4];
    store_columns(v, 4, last);
    for (std::int64_t c = 0; c < count; ++c)
      std::copy_n(last + c * 4, std::min<std::int64_t>(4, in - k), weight + c * in + k);
  }
}

void Dequantise(const Int8Columns& columns, std::int64_t in, float* weight) {
  for (std::int64_t c = 0; c < columns.out; c += kGroup)
    dequantise_group(columns.tiles + c / kTileColumns * int8_tile_bytes(in),
                     c % kTileColumns / kGroup, in, std::min(kGroup, columns.out - c),
                     weight + c * in);
}

// kTiles tiles, of which `count` columns are wanted. Brings the tiles after these into a cache.
template <int kRows, int kTiles>
HWY_INLINE void multiply_tiles(const FewRows& x, const std::byte* tiles, std::int64_t count,
                               const float* bias, float* y, std::int64_t y_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kGroups = kTiles * kTileGroups;
  const Lanes4or8 d;
  const std::int64_t tile_bytes = int8_tile_bytes(x.in), piece = sum_piece(x.in);
  HWY_ALIGN float total[kRows][kGroups * kGroup];
  for (auto& row : total) {
    std::fill_n(row, kGroups * kGroup, -0.0f);  // which keeps the bits of any summand
    if (bias) std::copy_n(bias, count, row);
  }
  Group scales[kGroups];
  for (int g = 0; g < kGroups; ++g)
    scales[g] =
        hn::LoadU(d, scales_of(tiles + g / kTileGroups * tile_bytes) + g % kTileGroups * kGroup);
  for (std::int64_t k = 0; k < x.in; k += piece) {
    Group sums[kRows][kGroups];
    for (auto& row : sums)
      for (Group& sum : row) sum = hn::Zero(d);
    const std::int64_t end = std::min(x.in, k + piece);
    for (std::int64_t term = k; term < end; ++term) {
      for (int t = 0; t < kTiles; ++t) {
        const std::int8_t* q = bytes_of_tile(tiles + t * tile_bytes) + term * kTileColumns;
        if (term % 4 == 0) __builtin_prefetch(q + kTiles * tile_bytes, 0, 2);
        for (int i = 0; i < kTileGroups; ++i) {
          const int g = t * kTileGroups + i;
          const Group v = values_of(q + i * kGroup, scales[g]);
          for (int r = 0; r < kRows; ++r)
            sums[r][g] = hn::MulAdd(hn::Set(d, x.x[r * x.x_stride + term]), v, sums[r][g]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int g = 0; g < kGroups; ++g) {
        float* to = total[r] + g * kGroup;
        hn::Store(hn::Add(hn::Load(d, to), sums[r][g]), d, to);
      }
  }
  for (int r = 0; r < kRows; ++r) std::copy_n(total[r], count, y + r * y_stride);
}

// At most kRegisterRows rows.
template <int kRows>
HWY_INLINE void multiply_all_tiles(const FewRows& x, const Int8Columns& columns, float* y,
                                   std::int64_t y_stride) {
  constexpr int kTiles = kRows <= 2 ? 2 : 1;  // whose sums fit the registers
  constexpr std::int64_t kColumns = kTiles * kTileColumns;
  std::int64_t c = 0;
  const auto place = [&](auto tiles, std::int64_t count) {
    multiply_tiles<kRows, decltype(tiles)::value>(
        x, columns.tiles + c / kTileColumns * int8_tile_bytes(x.in), count,
        columns.bias ? columns.bias + c : nullptr, y + c, y_stride);
    c += count;
  };
  while (columns.out - c > kColumns - kTileColumns)
    place(std::integral_constant<int, kTiles>(), std::min(kColumns, columns.out - c));
  while (c < columns.out)
    place(std::integral_constant<int, 1>(), std::min(kTileColumns, columns.out - c));
}

// More than kRegisterRows rows, as multiply_packed().
HWY_INLINE void multiply_packed_int8(const FewRows& x, const Int8Columns& columns, float* y,
                                     std::int64_t y_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  HWY_ALIGN float packed[kLongestPiece * kPacked];
  HWY_ALIGN float last[kMostFewRows * kPacked];  // of fewer than kPacked columns
  const std::int64_t piece = sum_piece(x.in), tile_bytes = int8_tile_bytes(x.in);
  for (std::int64_t c = 0; c < columns.out; c += kPacked) {
    const std::int64_t count = std::min(kPacked, columns.out - c), lane = c % kTileColumns;
    const std::byte* tile = columns.tiles + c / kTileColumns * tile_bytes;
    HWY_ALIGN float first[kPacked];
    std::fill_n(first, kPacked, -0.0f);  // which keeps the bits of any summand
    if (columns.bias) std::copy_n(columns.bias + c, count, first);
    Group scales[kPackedGroups];
    for (int g = 0; g < kPackedGroups; ++g)
      scales[g] = hn::LoadU(d, scales_of(tile) + lane + g * kGroup);
    float* to = count < kPacked ? last : y + c;
    const std::int64_t to_stride = count < kPacked ? kPacked : y_stride;
    for (std::int64_t k = 0; k < x.in; k += piece) {
      const std::int64_t terms = std::min(piece, x.in - k);
      const std::int8_t* q = bytes_of_tile(tile) + k * kTileColumns + lane;
      for (std::int64_t term = 0; term < terms; ++term, q += kTileColumns) {
        if (term % 4 == 0) __builtin_prefetch(q + tile_bytes, 0, 2);
        for (int g = 0; g < kPackedGroups; ++g)
          hn::Store(values_of(q + g * kGroup, scales[g]), d, packed + term * kPacked + g * kGroup);
      }
      add_packed_rows(x.x + k, x.rows, x.x_stride, packed, terms, k == 0 ? first : nullptr, to,
                      to_stride);
    }
    if (count < kPacked)
      for (std::int64_t r = 0; r < x.rows; ++r)
        std::copy_n(last + r * kPacked, count, y + r * y_stride + c);
  }
}

void MultiplyInt8(const FewRows& x, const Int8Columns& columns, float* y, std::int64_t y_stride) {
  switch (x.rows) {
    case 1:
      return multiply_all_tiles<1>(x, columns, y, y_stride);
    case 2:
      return multiply_all_tiles<2>(x, columns, y, y_stride);
    case 3:
      return multiply_all_tiles<3>(x, columns, y, y_stride);
    case 4:
      return multiply_all_tiles<4>(x, columns, y, y_stride);
    default:
      return multiply_packed_int8(x, columns, y, y_stride);
  }
}
#endif

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(QuantiseRow);
HWY_EXPORT(Dequantise);
HWY_EXPORT(MultiplyInt8);

float quantise_row(const float* row, std::int64_t in, std::int8_t* q) {
  return HWY_DYNAMIC_DISPATCH(QuantiseRow)(row, in, q);
}

void put_int8(std::byte* tiles, std::int64_t in, std::int64_t column, float scale,
              const std::int8_t* q, std::int64_t term, std::int64_t count) {
  const std::int64_t lane = column % kTileColumns;
  std::byte* tile = tiles + column / kTileColumns * int8_tile_bytes(in);
  std::memcpy(tile + lane * sizeof(float), &scale, sizeof(float));
  std::byte* to = tile + kTileColumns * sizeof(float) + term * kTileColumns + lane;
  for (std::int64_t i = 0; i < count; ++i) to[i * kTileColumns] = static_cast<std::byte>(q[i]);
}

void dequantise(const Int8Columns& columns, std::int64_t in, float* weight) {
  HWY_DYNAMIC_DISPATCH(Dequantise)(columns, in, weight);
}

void multiply_int8(const FewRows& x, const Int8Columns& columns, float* y, std::int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyInt8)(x, columns, y, y_stride);
}
}  // namespace strata::kernels
#endif
