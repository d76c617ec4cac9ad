// The scores of a block of keys are a product of few rows with the keys; the output adds up the
// values with the scores' exponentials, lanes are elements of a head.
#include <cmath>
#include <limits>

#include "strata/nn/kernels/decoding.h"

// The order is that of libraries for AVX2: kernels for more instructions would have the same bits.
#define HWY_DISABLED_TARGETS (HWY_AVX3 | HWY_AVX3_DL | HWY_SSE4 | HWY_SSSE3)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/attend_few.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/few_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// No kernel: the comparison with the library (few_rows.h) fails, so queries are padded.
void AttendFew(const Queries& queries, const PagesOfHead& text, std::int64_t, std::int64_t,
               float* y) {
  for (std::int64_t i = 0; i < queries.heads * text.width; ++i)
    y[i] = std::numeric_limits<float>::quiet_NaN();
}
#else

// ATen's exp_u20 (ATen/cpu/vec/vec256/vec256_float.h): at most 20 units in the last place.
HWY_INLINE hn::Vec<Quad> exponential(hn::Vec<Quad> x) {
  const Quad d;
  const hn::RebindToSigned<Quad> whole;
  const float lowest = -0x1.5d58ap+6f, highest = 0x1.62e430p+6f;
  const auto vanishes = hn::Lt(x, hn::Set(d, lowest));
  x = hn::Max(hn::Min(x, hn::Set(d, highest)), hn::Set(d, lowest));
  const auto n = hn::Floor(hn::MulAdd(x, hn::Set(d, 0x1.715476p+0f), hn::Set(d, 0.5f)));
  const auto rest = hn::NegMulAdd(n, hn::Set(d, 0x1.62e430p-1f), x);
  auto sum = hn::MulAdd(rest, hn::Set(d, 0.00828929059f), hn::Set(d, 0.0418978221f));
  sum = hn::MulAdd(rest, sum, hn::Set(d, 0.166676521f));
  sum = hn::MulAdd(rest, sum, hn::Set(d, 0.499991506f));
  sum = hn::MulAdd(rest, sum, hn::Set(d, 0.999999701f));
  sum = hn::MulAdd(rest, sum, hn::Set(d, 1.0f));
  const auto exponent = hn::ConvertTo(whole, hn::Sub(n, hn::Set(d, 1.0f)));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(whole, 127))));
  return hn::Mul(hn::Mul(sum, hn::IfThenZeroElse(vanishes, power)), hn::Set(d, 2.0f));
}

// Replaces the first `seen` of a block's scores by exp(score - top). The sum is ATen's: its vectors
// have kLanes lanes and end at a multiple of kLanes of the whole block; then the upper half of the
// sum is added to the lower one until one lane is left.
template <std::int64_t kLanes>
HWY_INLINE float exponentials(float* scores, std::int64_t seen, std::int64_t block, float top) {
  const Quad d;
  constexpr std::int64_t kQuads = kLanes / 4;
  const std::int64_t in_vectors = block / kLanes * kLanes;
  const std::int64_t vectors = std::min(in_vectors, seen);
  for (std::int64_t j = vectors; j < std::min(in_vectors, (seen + kLanes - 1) / kLanes * kLanes);
       ++j)
    scores[j] = -std::numeric_limits<float>::infinity();
  hn::Vec<Quad> sums[kQuads];
  for (auto& lanes : sums) lanes = hn::Zero(d);
  for (std::int64_t j = 0; j < vectors; j += kLanes)
    for (std::int64_t i = 0; i < kQuads; ++i) {
      float* at = scores + j + 4 * i;
      const auto quad = exponential(hn::Sub(hn::LoadU(d, at), hn::Set(d, top)));
      hn::StoreU(quad, d, at);
      sums[i] = hn::Add(sums[i], quad);
    }
  for (std::int64_t half = kQuads / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) sums[i] = hn::Add(sums[i], sums[i + half]);
  HWY_ALIGN float s[4];
  hn::Store(sums[0], d, s);
  float sum = (s[0] + s[2]) + (s[1] + s[3]);
  // ATen's bits are those of exp in double precision, rounded.
  for (std::int64_t j = in_vectors; j < seen; ++j)
    sum += scores[j] = static_cast<float>(std::exp(static_cast<double>(scores[j] - top)));
  return sum;
}

// One strip of a head's elements: y += the values of the block's first `seen` keys times p, for
// each query.
template <int kRows, typename T>
HWY_INLINE void add_values(const PagesOfHead& text, std::int64_t first, std::int64_t seen,
                           std::int64_t block, const float* p, bool begins, float* y) {
  const Lanes4or8 d;
  constexpr std::int64_t kStrip = kRows == 1 ? 8 : 2;  // vectors
  const auto* values = static_cast<const T*>(text.values);
  const std::int64_t width = text.width, piece = sum_piece(block);
  const auto strip = [&](std::int64_t at, auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    for (std::int64_t begin = 0; begin < seen; begin += piece) {
      Group sums[kRows][kVectors];
      for (auto& row : sums)
        for (Group& sum : row) sum = hn::Zero(d);
      const std::int64_t end = std::min(seen, begin + piece);
      for (std::int64_t j = begin; j < end;) {
        const std::int64_t key = first + j, slot = key % text.page_tokens;
        const std::int64_t count = std::min(text.page_tokens - slot, end - j);
        const T* v =
            values + text.pages[key / text.page_tokens] * text.page_stride + slot * width + at;
        for (std::int64_t i = 0; i < count; ++i, v += width)
          for (int k = 0; k < kVectors; ++k) {
            const Group value = load(d, v + k * kGroup);
            for (int r = 0; r < kRows; ++r)
              sums[r][k] = hn::MulAdd(hn::Set(d, p[r * kKeyBlock + j + i]), value, sums[r][k]);
          }
        j += count;
      }
      for (int r = 0; r < kRows; ++r)
        for (int k = 0; k < kVectors; ++k) {
          float* to = y + r * width + at + k * kGroup;
          hn::StoreU(begins && begin == 0 ? sums[r][k] : hn::Add(hn::LoadU(d, to), sums[r][k]), d,
                     to);
        }
    }
  };
  std::int64_t at = 0;
  for (; at + kStrip * kGroup <= width; at += kStrip * kGroup)
    strip(at, std::integral_constant<int, kStrip>());
  for (; at < width; at += kGroup) strip(at, std::integral_constant<int, 1>());
}

// The scores of the block's first `seen` keys, each query's in a row of kKeyBlock.
template <int kRows, typename T>
HWY_INLINE void scores_of(const Queries& queries, const PagesOfHead& text, std::int64_t first,
                          std::int64_t seen, float* scores) {
  const auto* keys = static_cast<const T*>(text.keys);
  for (std::int64_t j = 0; j < seen;) {
    const std::int64_t key = first + j, slot = key % text.page_tokens;
    const std::int64_t count = std::min(text.page_tokens - slot, seen - j);
    multiply_columns<kRows>(
        queries.q, text.width, text.width,
        keys + text.pages[key / text.page_tokens] * text.page_stride + slot * text.width, count,
        nullptr, scores + j, kKeyBlock);
    j += count;
  }
}

template <int kRows, typename T>
void attend_of(const Queries& queries, const PagesOfHead& text, std::int64_t seen,
               std::int64_t sample, float* y) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  HWY_ALIGN float scores[kRows * kKeyBlock];
  float tops[kRows], sums[kRows];
  std::fill_n(tops, kRows, kNone);
  std::fill_n(sums, kRows, 0.0f);
  for (std::int64_t first = 0; first < seen; first += kKeyBlock) {
    const std::int64_t block = std::min(kKeyBlock, sample - first);
    const std::int64_t count = std::min(block, seen - first);
    scores_of<kRows, T>(queries, text, first, count, scores);
    for (int r = 0; r < kRows; ++r) {
      float* row = scores + r * kKeyBlock;
      float top = tops[r];
      for (std::int64_t j = 0; j < count; ++j) top = std::max(top, row[j] *= queries.scale);
      const float sum = queries.lanes == ExponentLanes::k16
                            ? exponentials<16>(row, count, block, top)
                            : exponentials<8>(row, count, block, top);
      const float change = std::exp(tops[r] - top);
      sums[r] = std::fma(change, sums[r], sum);
      tops[r] = top;
      if (first > 0)
        for (std::int64_t c = 0; c < text.width; ++c) y[r * text.width + c] *= change;
    }
    add_values<kRows, T>(text, first, count, block, scores, first == 0, y);
  }
  for (int r = 0; r < kRows; ++r) {
    const float factor = 1 / sums[r];
    for (std::int64_t c = 0; c < text.width; ++c) y[r * text.width + c] *= factor;
  }
}

template <typename T>
void attend_rows(const Queries& queries, const PagesOfHead& text, std::int64_t seen,
                 std::int64_t sample, float* y) {
  switch (queries.heads) {
    case 1:
      return attend_of<1, T>(queries, text, seen, sample, y);
    case 2:
      return attend_of<2, T>(queries, text, seen, sample, y);
    case 3:
      return attend_of<3, T>(queries, text, seen, sample, y);
    default:
      return attend_of<4, T>(queries, text, seen, sample, y);
  }
}

void AttendFew(const Queries& queries, const PagesOfHead& text, std::int64_t seen,
               std::int64_t sample, float* y) {
  for (std::int64_t head = 0; head < queries.heads; head += kRegisterRows) {
    const Queries few{.q = queries.q + head * text.width,
                      .heads = std::min(kRegisterRows, queries.heads - head),
                      .scale = queries.scale,
                      .lanes = queries.lanes};
    STRATA_WITH_ELEMENT(text.element,
                        attend_rows<T>(few, text, seen, sample, y + head * text.width));
  }
}

#endif

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(AttendFew);

void attend_few(const Queries& queries, const PagesOfHead& text, std::int64_t seen,
                std::int64_t sample, float* y) {
  HWY_DYNAMIC_DISPATCH(AttendFew)(queries, text, seen, sample, y);
}
}  // namespace strata::kernels
#endif
