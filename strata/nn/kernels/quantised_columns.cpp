// A tile has its terms in ascending order, each with one element of all columns, so they become
// fp32 values in registers without a transposition. Products of one to four rows compute several
// groups of columns at once, because each addition to the sum of a group waits for the one before.
#include "strata/nn/kernels/quantised_columns.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "strata/nn/kernels/kernels.h"

// As in few_rows.cpp, whose bits these products have.
#define HWY_DISABLED_TARGETS (HWY_AVX3 | HWY_AVX3_DL | HWY_SSE4 | HWY_SSSE3)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/quantised_columns.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/few_rows-inl.h"
#include "strata/nn/kernels/packed_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
void Dequantise(const QuantisedColumns& columns, std::int64_t in, float* weight) {
  const bool int8 = columns.type == QuantisedType::kInt8;
  for (std::int64_t o = 0; o < columns.out; ++o) {
    const std::byte* tile = columns.tiles + o / kTileColumns * tile_bytes(columns.type, in);
    const std::int64_t lane = o % kTileColumns;
    for (std::int64_t k = 0; k < in; ++k) {
      float scale, minimum = 0;
      std::int32_t q;
      if (int8) {
        std::memcpy(&scale, tile + lane * 4, 4);
        q = static_cast<std::int8_t>(tile[int8_place(k) + lane]);
      } else {
        const std::byte* header = tile + k / kInt4Terms * kInt4GroupBytes + lane * 2;
        kernels::widen(Element::kFp16, header, &scale, 1);
        kernels::widen(Element::kFp16, header + kTileColumns * 2, &minimum, 1);
        const auto both = static_cast<std::uint8_t>(tile[int4_place(k) + lane % kInt4Bytes]);
        q = lane < kInt4Bytes ? both & 15 : both >> 4;
      }
      weight[o * in + k] = minimum + scale * static_cast<float>(q);
    }
  }
}

// No kernel, as in few_rows.cpp.
void MultiplyQuantised(const FewRows& x, const QuantisedColumns& columns, float* y,
                       std::int64_t y_stride) {
  for (std::int64_t row = 0; row < x.rows; ++row)
    for (std::int64_t o = 0; o < columns.out; ++o)
      y[row * y_stride + o] = std::numeric_limits<float>::quiet_NaN();
}
#else

inline constexpr std::int64_t kTileGroups = kTileColumns / kGroup;

// The values of a tile, by groups of columns. begin_group() comes before the terms of a group.
class Int8Tile {
 public:
  static constexpr QuantisedType kType = QuantisedType::kInt8;
  static constexpr std::int64_t kLineTerms = 4;  // of a cache line

  HWY_INLINE void begin(const std::byte* tile) { tile_ = tile; }
  static std::int64_t group_end(std::int64_t) { return std::numeric_limits<std::int64_t>::max(); }

  HWY_INLINE void begin_group(std::int64_t) {
    namespace hn = hwy::HWY_NAMESPACE;
    for (std::int64_t g = 0; g < kTileGroups; ++g)
      scales_[g] = hn::LoadU(Lanes4or8(), reinterpret_cast<const float*>(tile_) + g * kGroup);
  }

  HWY_INLINE Group values(std::int64_t term, std::int64_t g) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Rebind<std::int32_t, Lanes4or8> whole;
    const hn::Rebind<std::int8_t, Lanes4or8> byte;
    const auto* q = reinterpret_cast<const std::int8_t*>(place(term)) + g * kGroup;
    const auto steps = hn::PromoteTo(whole, hn::LoadU(byte, q));
    return hn::Mul(hn::ConvertTo(Lanes4or8(), steps), scales_[g]);
  }

  const std::byte* place(std::int64_t term) const { return tile_ + int8_place(term); }

 private:
  const std::byte* tile_;
  Group scales_[kTileGroups];
};

class Int4Tile {
 public:
  static constexpr QuantisedType kType = QuantisedType::kInt4;
  static constexpr std::int64_t kLineTerms = 8;

  HWY_INLINE void begin(const std::byte* tile) { tile_ = tile; }
  static std::int64_t group_end(std::int64_t term) { return (term / kInt4Terms + 1) * kInt4Terms; }

  HWY_INLINE void begin_group(std::int64_t term) {
    group_ = tile_ + term / kInt4Terms * kInt4GroupBytes;
    const auto* halves = reinterpret_cast<const Fp16*>(group_);
    for (std::int64_t g = 0; g < kTileGroups; ++g) {
      scales_[g] = load(Lanes4or8(), halves + g * kGroup);
      minima_[g] = load(Lanes4or8(), halves + kTileColumns + g * kGroup);
    }
  }

  // The product is exact: a scale has 11 digits, a step 4.
  HWY_INLINE Group values(std::int64_t term, std::int64_t g) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Rebind<std::int32_t, Lanes4or8> whole;
    const hn::Rebind<std::uint8_t, Lanes4or8> byte;
    const std::int64_t column = g * kGroup;
    const auto* both = reinterpret_cast<const std::uint8_t*>(place(term)) + column % kInt4Bytes;
    const auto promoted = hn::PromoteTo(whole, hn::LoadU(byte, both));
    const auto steps =
        column < kInt4Bytes ? hn::And(promoted, hn::Set(whole, 15)) : hn::ShiftRight<4>(promoted);
    return hn::MulAdd(hn::ConvertTo(Lanes4or8(), steps), scales_[g], minima_[g]);
  }

  const std::byte* place(std::int64_t term) const {
    return group_ + kInt4Header + term % kInt4Terms * kInt4Bytes;
  }

 private:
  const std::byte *tile_, *group_;
  Group scales_[kTileGroups], minima_[kTileGroups];
};

// Calls use(term) for terms [begin, end) in ascending order, after the tiles began their groups.
template <typename Tile, int kTiles, typename Use>
HWY_INLINE void for_tile_terms(Tile (&tiles)[kTiles], std::int64_t begin, std::int64_t end,
                               Use use) {
  for (std::int64_t term = begin; term < end;) {
    for (Tile& tile : tiles) tile.begin_group(term);
    for (const std::int64_t stop = std::min(end, Tile::group_end(term)); term < stop; ++term)
      use(term);
  }
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

// `count` columns of group g of a tile.
template <typename Tile>
HWY_INLINE void dequantise_group(const std::byte* bytes, std::int64_t g, std::int64_t in,
                                 std::int64_t count, float* weight) {
  static_assert(kInt4Terms % 4 == 0);  // four terms are of one group
  Tile tile;
  tile.begin(bytes);
  for (std::int64_t k = 0; k < in; k += 4) {
    if (k == 0 || k == Tile::group_end(k - 1)) tile.begin_group(k);
    Group v[4];
    for (std::int64_t i = 0; i < 4; ++i) v[i] = tile.values(std::min(k + i, in - 1), g);
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

template <typename Tile>
void dequantise_columns(const QuantisedColumns& columns, std::int64_t in, float* weight) {
  for (std::int64_t c = 0; c < columns.out; c += kGroup)
    dequantise_group<Tile>(columns.tiles + c / kTileColumns * tile_bytes(Tile::kType, in),
                           c % kTileColumns / kGroup, in, std::min(kGroup, columns.out - c),
                           weight + c * in);
}

void Dequantise(const QuantisedColumns& columns, std::int64_t in, float* weight) {
  switch (columns.type) {
    case QuantisedType::kInt8:
      return dequantise_columns<Int8Tile>(columns, in, weight);
    case QuantisedType::kInt4:
      return dequantise_columns<Int4Tile>(columns, in, weight);
  }
}

// kTiles tiles, of which `count` columns are wanted. Brings the tiles after these into a cache.
template <typename Tile, int kRows, int kTiles>
HWY_INLINE void multiply_tiles(const FewRows& x, const std::byte* bytes, std::int64_t count,
                               const float* bias, float* y, std::int64_t y_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kGroups = kTiles * kTileGroups;
  const Lanes4or8 d;
  const std::int64_t tile_size = tile_bytes(Tile::kType, x.in), piece = sum_piece(x.in);
  HWY_ALIGN float total[kRows][kGroups * kGroup];
  for (auto& row : total) {
    std::fill_n(row, kGroups * kGroup, -0.0f);  // which keeps the bits of any summand
    if (bias) std::copy_n(bias, count, row);
  }
  Tile tiles[kTiles];
  for (int t = 0; t < kTiles; ++t) tiles[t].begin(bytes + t * tile_size);
  for (std::int64_t k = 0; k < x.in; k += piece) {
    Group sums[kRows][kGroups];
    for (auto& row : sums)
      for (Group& sum : row) sum = hn::Zero(d);
    for_tile_terms(tiles, k, std::min(x.in, k + piece), [&](std::int64_t term) {
      for (int t = 0; t < kTiles; ++t) {
        if (term % Tile::kLineTerms == 0)
          __builtin_prefetch(tiles[t].place(term) + kTiles * tile_size, 0, 2);
        for (int i = 0; i < kTileGroups; ++i) {
          const Group v = tiles[t].values(term, i);
          for (int r = 0; r < kRows; ++r) {
            Group& sum = sums[r][t * kTileGroups + i];
            sum = hn::MulAdd(hn::Set(d, x.x[r * x.x_stride + term]), v, sum);
          }
        }
      }
    });
    for (int r = 0; r < kRows; ++r)
      for (int g = 0; g < kGroups; ++g) {
        float* to = total[r] + g * kGroup;
        hn::Store(hn::Add(hn::Load(d, to), sums[r][g]), d, to);
      }
  }
  for (int r = 0; r < kRows; ++r) std::copy_n(total[r], count, y + r * y_stride);
}

// At most kRegisterRows rows.
template <typename Tile, int kRows>
HWY_INLINE void multiply_all_tiles(const FewRows& x, const QuantisedColumns& columns, float* y,
                                   std::int64_t y_stride) {
  constexpr int kTiles = kRows <= 2 ? 2 : 1;  // whose sums fit the registers
  constexpr std::int64_t kColumns = kTiles * kTileColumns;
  std::int64_t c = 0;
  const auto place = [&](auto tiles, std::int64_t count) {
    multiply_tiles<Tile, kRows, decltype(tiles)::value>(
        x, columns.tiles + c / kTileColumns * tile_bytes(Tile::kType, x.in), count,
        columns.bias ? columns.bias + c : nullptr, y + c, y_stride);
    c += count;
  };
  while (columns.out - c > kColumns - kTileColumns)
    place(std::integral_constant<int, kTiles>(), std::min(kColumns, columns.out - c));
  while (c < columns.out)
    place(std::integral_constant<int, 1>(), std::min(kTileColumns, columns.out - c));
}

// More than kRegisterRows rows, as multiply_packed().
template <typename Tile>
HWY_INLINE void multiply_packed_tiles(const FewRows& x, const QuantisedColumns& columns, float* y,
                                      std::int64_t y_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Lanes4or8 d;
  HWY_ALIGN float packed[kLongestPiece * kPacked];
  HWY_ALIGN float last[kMostFewRows * kPacked];  // of fewer than kPacked columns
  const std::int64_t piece = sum_piece(x.in), tile_size = tile_bytes(Tile::kType, x.in);
  for (std::int64_t c = 0; c < columns.out; c += kPacked) {
    const std::int64_t count = std::min(kPacked, columns.out - c);
    const std::int64_t first_group = c % kTileColumns / kGroup;
    Tile tile[1];
    tile[0].begin(columns.tiles + c / kTileColumns * tile_size);
    HWY_ALIGN float first[kPacked];
    std::fill_n(first, kPacked, -0.0f);  // which keeps the bits of any summand
    if (columns.bias) std::copy_n(columns.bias + c, count, first);
    float* to = count < kPacked ? last : y + c;
    const std::int64_t to_stride = count < kPacked ? kPacked : y_stride;
    for (std::int64_t k = 0; k < x.in; k += piece) {
      const std::int64_t terms = std::min(piece, x.in - k);
      for_tile_terms(tile, k, k + terms, [&](std::int64_t term) {
        if (term % Tile::kLineTerms == 0) __builtin_prefetch(tile[0].place(term) + tile_size, 0, 2);
        for (int g = 0; g < kPackedGroups; ++g)
          hn::Store(tile[0].values(term, first_group + g), d,
                    packed + (term - k) * kPacked + g * kGroup);
      });
      add_packed_rows(x.x + k, x.rows, x.x_stride, packed, terms, k == 0 ? first : nullptr, to,
                      to_stride);
    }
    if (count < kPacked)
      for (std::int64_t r = 0; r < x.rows; ++r)
        std::copy_n(last + r * kPacked, count, y + r * y_stride + c);
  }
}

template <typename Tile>
void multiply_columns_of(const FewRows& x, const QuantisedColumns& columns, float* y,
                         std::int64_t y_stride) {
  switch (x.rows) {
    case 1:
      return multiply_all_tiles<Tile, 1>(x, columns, y, y_stride);
    case 2:
      return multiply_all_tiles<Tile, 2>(x, columns, y, y_stride);
    case 3:
      return multiply_all_tiles<Tile, 3>(x, columns, y, y_stride);
    case 4:
      return multiply_all_tiles<Tile, 4>(x, columns, y, y_stride);
    default:
      return multiply_packed_tiles<Tile>(x, columns, y, y_stride);
  }
}

void MultiplyQuantised(const FewRows& x, const QuantisedColumns& columns, float* y,
                       std::int64_t y_stride) {
  switch (columns.type) {
    case QuantisedType::kInt8:
      return multiply_columns_of<Int8Tile>(x, columns, y, y_stride);
    case QuantisedType::kInt4:
      return multiply_columns_of<Int4Tile>(x, columns, y, y_stride);
  }
}
#endif

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(Dequantise);
HWY_EXPORT(MultiplyQuantised);

void dequantise(const QuantisedColumns& columns, std::int64_t in, float* weight) {
  HWY_DYNAMIC_DISPATCH(Dequantise)(columns, in, weight);
}

void multiply_quantised(const FewRows& x, const QuantisedColumns& columns, float* y,
                        std::int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyQuantised)(x, columns, y, y_stride);
}
}  // namespace strata::kernels
#endif
