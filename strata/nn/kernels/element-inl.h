/// Reads and writes elements of fp32, bf16 or fp16 as vectors and numbers of fp32, and sums columns
/// of them. Included once per Highway target.
///
/// Results are rounded to nearest even, like ATen's.
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(STRATA_ELEMENT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_ELEMENT_INL_H
#undef STRATA_ELEMENT_INL_H
#else
#define STRATA_ELEMENT_INL_H
#endif

#include "hwy/highway.h"
#include "strata/nn/kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

using FloatTag = hwy::HWY_NAMESPACE::ScalableTag<float>;
using FloatVector = hwy::HWY_NAMESPACE::Vec<FloatTag>;

template <typename D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, const float* from) {
  return hwy::HWY_NAMESPACE::LoadU(d, from);
}

template <typename D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, const Bf16* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> wide;
  const hn::Rebind<std::uint16_t, D> narrow;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}

// Highway's emulated fp16, for processors without fp16 instructions, neither rounds nor has
// infinities.
#if HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_EMU128 || \
    HWY_TARGET == HWY_SCALAR

template <typename D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, const Fp16* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> wide;
  const hn::Rebind<std::uint16_t, D> narrow;
  const auto bits =
      hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from)));
  const auto magnitude = hn::And(bits, hn::Set(wide, 0x7FFFu));
  // The exponent's bias grows by 127 - 15; the product is exact, also for denormals.
  const auto value = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto exponent = hn::IfThenElse(hn::Gt(magnitude, hn::Set(wide, 0x7BFFu)),
                                       hn::Set(wide, 0x7F800000u), hn::Zero(wide));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(wide, value), exponent), sign));
}

template <typename D>
HWY_INLINE void store(hwy::HWY_NAMESPACE::Vec<D> v, D d, Fp16* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> wide;
  const hn::RebindToSigned<D> whole;
  const hn::Rebind<std::uint16_t, D> narrow;
  const auto bits = hn::BitCast(wide, v);
  const auto magnitude = hn::And(bits, hn::Set(wide, 0x7FFFFFFFu));
  const auto above = [&](std::uint32_t limit) { return hn::Gt(magnitude, hn::Set(wide, limit)); };
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(wide, 1u));
  const auto bias = hn::Set(wide, 0xFFFu - (112u << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, bias)));
  // Adding 0.5 rounds at the last denormal bit of fp16.
  const auto half = hn::Set(d, 0.5f);
  const auto denormal =
      hn::Sub(hn::BitCast(wide, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(wide, half));
  auto result = hn::IfThenElse(above(0x387FFFFFu), normal, denormal);           // from 2^-14 on
  result = hn::IfThenElse(above(0x477FFFFFu), hn::Set(wide, 0x7C00u), result);  // from 2^16 on
  result = hn::IfThenElse(above(0x7F800000u), hn::Set(wide, 0x7E00u), result);  // NaN
  result = hn::Or(result, hn::ShiftRight<16>(hn::Xor(bits, magnitude)));
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(whole, result)), narrow,
             reinterpret_cast<std::uint16_t*>(to));
}

#else

template <typename D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, const Fp16* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<hwy::float16_t, D> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
}

template <typename D>
HWY_INLINE void store(hwy::HWY_NAMESPACE::Vec<D> v, D d, Fp16* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<hwy::float16_t, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, v), narrow, reinterpret_cast<hwy::float16_t*>(to));
}

#endif

template <typename D>
HWY_INLINE void store(hwy::HWY_NAMESPACE::Vec<D> v, D d, float* to) {
  hwy::HWY_NAMESPACE::StoreU(v, d, to);
}

template <typename D>
HWY_INLINE void store(hwy::HWY_NAMESPACE::Vec<D> v, D d, Bf16* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> wide;
  const hn::RebindToSigned<D> whole;
  const hn::Rebind<std::uint16_t, D> narrow;
  const auto bits = hn::BitCast(wide, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(wide, 0x7FFFu))));
  const auto nan = hn::RebindMask(wide, hn::IsNaN(v));  // Ne(v, v) is false on AVX
  const auto result = hn::IfThenElse(nan, hn::Set(wide, 0x7FC0u), rounded);
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(whole, result)), narrow,
             reinterpret_cast<std::uint16_t*>(to));
}

// One element, for the ends of rows.
HWY_INLINE float get(const float* from) { return *from; }
HWY_INLINE void put(float value, float* to) { *to = value; }

template <typename T>
HWY_INLINE float get(const T* from) {
  const hwy::HWY_NAMESPACE::CappedTag<float, 1> d;
  return hwy::HWY_NAMESPACE::GetLane(load(d, from));
}

template <typename T>
HWY_INLINE void put(float value, T* to) {
  const hwy::HWY_NAMESPACE::CappedTag<float, 1> d;
  store(hwy::HWY_NAMESPACE::Set(d, value), d, to);
}

/// Loads the first n lanes; the others are zero.
template <typename T>
HWY_INLINE FloatVector load_partial(const T* from, std::int64_t n) {
  const FloatTag d;
  if (n == static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(d))) return load(d, from);
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, n * sizeof(T));
  return load(d, padded);
}

template <typename T>
HWY_INLINE void store_partial(FloatVector v, T* to, std::int64_t n) {
  const FloatTag d;
  if (n == static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(d))) return store(v, d, to);
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)];
  store(v, d, padded);
  std::memcpy(to, padded, n * sizeof(T));
}

/// Calls body(first, n) for the vectors of a row: n lanes each, fewer in the last one.
template <typename Body>
HWY_INLINE void for_each_partial(std::int64_t width, Body body) {
  const auto lanes = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(FloatTag()));
  for (std::int64_t c = 0; c < width; c += lanes) body(c, width - c < lanes ? width - c : lanes);
}

/// Calls body(c, n) for n vectors of columns from c on: strips of kStrip vectors, whose sums stay
/// in registers over all rows, then single vectors (n is a constant of its type). Returns the first
/// remaining column; less than a vector remains.
template <int kStrip, typename Body>
HWY_INLINE std::int64_t for_each_strip(std::int64_t begin, std::int64_t end, Body body) {
  const auto lanes = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(FloatTag()));
  std::int64_t c = begin;
  for (; c + kStrip * lanes <= end; c += kStrip * lanes)
    body(c, std::integral_constant<int, kStrip>());
  for (; c + lanes <= end; c += lanes) body(c, std::integral_constant<int, 1>());
  return c;
}

/// sum[c] += the terms of column c in ascending rows, for the columns [begin, end), in strips of
/// kStrip vectors. `add_vector` and `add_number` (total, row, at) return the total plus the term at
/// offset `at`.
template <int kStrip, typename AddVector, typename AddNumber>
HWY_INLINE void add_columns(float* sum, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                            std::int64_t end, AddVector add_vector, AddNumber add_number) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = for_each_strip<kStrip>(begin, end, [&](std::int64_t first, auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    FloatVector total[kVectors];
    for (int k = 0; k < kVectors; ++k) total[k] = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row)
      for (int k = 0; k < kVectors; ++k)
        total[k] = add_vector(total[k], row, row * columns + first + k * lanes);
    for (int k = 0; k < kVectors; ++k) {
      float* to = sum + first + k * lanes;
      hn::StoreU(hn::Add(hn::LoadU(d, to), total[k]), d, to);
    }
  });
  for (; c < end; ++c) {
    float total = 0;
    for (std::int64_t row = 0; row < rows; ++row) total = add_number(total, row, row * columns + c);
    sum[c] += total;
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
