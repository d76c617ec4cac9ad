// Whole vectors first, then single elements by the same operations (the compiler fuses none,
// cmake/toolchain.cmake).
#include "strata/comm/block_kernels.h"

#include <algorithm>
#include <bit>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/comm/block_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef STRATA_BLOCK_KERNELS_ONCE
#define STRATA_BLOCK_KERNELS_ONCE
namespace strata::kernels {

// Added to a float of small magnitude, it leaves the nearest integer in the lowest bits.
inline constexpr float kRound = 12582912.0f;
inline constexpr std::int32_t kZero = 8;  // is added to every 4-bit integer
inline constexpr std::uint32_t kMagnitude = 0x7fffffffu, kInfinity = 0x7f800000u;

inline std::int32_t nearest(float x) {
  return std::bit_cast<std::int32_t>(x + kRound) - std::bit_cast<std::int32_t>(kRound);
}

template <bool kAdd>
void put(float value, float& to) {
  to = kAdd ? to + value : value;
}

}  // namespace strata::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using Whole = hn::RebindToSigned<D>;
using Word = hn::RebindToUnsigned<D>;
using Byte = hn::Rebind<std::uint8_t, D>;

// The bits of infinities and NaN, as integers, are larger than those of finite numbers.
std::uint32_t LargestBits(const float* x, std::int64_t n) {
  const Word d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    largest =
        hn::Max(largest, hn::And(hn::BitCast(d, hn::LoadU(D(), x + i)), hn::Set(d, kMagnitude)));
  std::uint32_t rest = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; i < n; ++i) rest = std::max(rest, std::bit_cast<std::uint32_t>(x[i]) & kMagnitude);
  return rest;
}

HWY_INLINE hn::Vec<Whole> Nearest(hn::Vec<D> x, float factor) {
  const auto moved = hn::Add(hn::Mul(x, hn::Set(D(), factor)), hn::Set(D(), kRound));
  return hn::Sub(hn::BitCast(Whole(), moved),
                 hn::Set(Whole(), std::bit_cast<std::int32_t>(kRound)));
}

void PackInt8(const float* x, float factor, std::uint8_t* to, std::int64_t n) {
  const hn::Rebind<std::int8_t, D> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::DemoteTo(narrow, Nearest(hn::LoadU(D(), x + i), factor)), narrow,
               reinterpret_cast<std::int8_t*>(to + i));
  for (; i < n; ++i) to[i] = static_cast<std::uint8_t>(nearest(x[i] * factor));
}

void PackInt4(const float* x, float factor, std::uint8_t* to, std::int64_t n) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  const auto zero = hn::Set(Whole(), kZero);
  std::int64_t i = 0;  // pairs
  for (; i + lanes <= n / 2; i += lanes) {
    hn::Vec<D> first, second;
    hn::LoadInterleaved2(D(), x + 2 * i, first, second);
    const auto low = hn::Add(Nearest(first, factor), zero);
    const auto high = hn::Add(Nearest(second, factor), zero);
    hn::StoreU(hn::DemoteTo(Byte(), hn::Or(low, hn::ShiftLeft<4>(high))), Byte(), to + i);
  }
  for (; i < n / 2; ++i)
    to[i] = static_cast<std::uint8_t>((nearest(x[2 * i] * factor) + kZero) |
                                      (nearest(x[2 * i + 1] * factor) + kZero) << 4);
  if (n % 2 != 0) to[i] = static_cast<std::uint8_t>(nearest(x[n - 1] * factor) + kZero);
}

template <bool kAdd>
void FromInt8(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  const hn::Rebind<std::int8_t, D> narrow;
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto whole =
        hn::PromoteTo(Whole(), hn::LoadU(narrow, reinterpret_cast<const std::int8_t*>(from + i)));
    const auto value = hn::Mul(hn::ConvertTo(d, whole), hn::Set(d, scale));
    hn::StoreU(kAdd ? hn::Add(hn::LoadU(d, to + i), value) : value, d, to + i);
  }
  for (; i < n; ++i)
    put<kAdd>(static_cast<float>(static_cast<std::int8_t>(from[i])) * scale, to[i]);
}

template <bool kAdd>
void FromInt4(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto value = [&](auto whole) {
    return hn::Mul(hn::ConvertTo(d, hn::Sub(whole, hn::Set(Whole(), kZero))), hn::Set(d, scale));
  };
  std::int64_t i = 0;  // pairs
  for (; i + lanes <= n / 2; i += lanes) {
    const auto both = hn::PromoteTo(Whole(), hn::LoadU(Byte(), from + i));
    auto first = value(hn::And(both, hn::Set(Whole(), 15)));
    auto second = value(hn::ShiftRight<4>(both));
    if constexpr (kAdd) {
      hn::Vec<D> a, b;
      hn::LoadInterleaved2(d, to + 2 * i, a, b);
      first = hn::Add(a, first);
      second = hn::Add(b, second);
    }
    hn::StoreInterleaved2(first, second, d, to + 2 * i);
  }
  for (; i < n / 2; ++i) {
    put<kAdd>(static_cast<float>((from[i] & 15) - kZero) * scale, to[2 * i]);
    put<kAdd>(static_cast<float>((from[i] >> 4) - kZero) * scale, to[2 * i + 1]);
  }
  if (n % 2 != 0) put<kAdd>(static_cast<float>((from[i] & 15) - kZero) * scale, to[n - 1]);
}

// The dispatch takes no templates.
void UnpackInt8(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  FromInt8<false>(from, scale, to, n);
}
void UnpackInt4(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  FromInt4<false>(from, scale, to, n);
}
void AddInt8(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  FromInt8<true>(from, scale, to, n);
}
void AddInt4(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  FromInt4<true>(from, scale, to, n);
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(LargestBits);
HWY_EXPORT(PackInt8);
HWY_EXPORT(PackInt4);
HWY_EXPORT(UnpackInt8);
HWY_EXPORT(UnpackInt4);
HWY_EXPORT(AddInt8);
HWY_EXPORT(AddInt4);

float largest_magnitude(const float* x, std::int64_t n) {
  const std::uint32_t largest = HWY_DYNAMIC_DISPATCH(LargestBits)(x, n);
  if (largest >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(largest);
}

void pack_int8(const float* x, float factor, std::uint8_t* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(PackInt8)(x, factor, to, n);
}
void pack_int4(const float* x, float factor, std::uint8_t* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(PackInt4)(x, factor, to, n);
}
void unpack_int8(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnpackInt8)(from, scale, to, n);
}
void unpack_int4(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnpackInt4)(from, scale, to, n);
}
void add_int8(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddInt8)(from, scale, to, n);
}
void add_int4(const std::uint8_t* from, float scale, float* to, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddInt4)(from, scale, to, n);
}
}  // namespace strata::kernels
#endif
