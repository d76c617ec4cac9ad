/// Moves elements of fp32, bf16 or fp16 between memory and a kernel's registers, where they are fp32.
///
/// A thread moves several at once: 16 bytes where they lie on such a border, else one by one, so that
/// kernels need no other form for odd rows. What is narrowed is rounded to nearest even; a NaN stays one
/// (bf16: 0x7FC0).
///
/// Example  const auto v = simt::load<simt::kWide<T>>(x + i, n - i);   // zeros behind the end
///          simt::store(v, y + i, n - i);                              // nothing behind it
#pragma once

#include <cstdint>
#include <cstring>

#include "strata/base/element.h"
#include "strata/device/simt.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace strata::simt {

using kernels::Bf16;
using kernels::Fp16;

template <typename To, typename From>
STRATA_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// ---- One element

STRATA_DEVICE float widen(float x) { return x; }
STRATA_DEVICE float widen(Bf16 x) { return bits_as<float>(std::uint32_t{x.bits} << 16); }

STRATA_DEVICE void narrow(float x, float& to) { to = x; }

#ifdef __CUDACC__

STRATA_DEVICE float widen(Fp16 x) { return __half2float(__ushort_as_half(x.bits)); }
STRATA_DEVICE void narrow(float x, Bf16& to) {
  const std::uint16_t rounded = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  to.bits = x != x ? std::uint16_t{0x7FC0} : rounded;
}
STRATA_DEVICE void narrow(float x, Fp16& to) { to.bits = __half_as_ushort(__float2half_rn(x)); }

#else

inline float widen(Fp16 x) {
  const std::uint32_t magnitude = x.bits & 0x7FFFu, sign = std::uint32_t{x.bits & 0x8000u} << 16;
  // The exponent's bias grows by 127 - 15; the product is exact, also for denormals.
  const float value = bits_as<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t infinite = magnitude > 0x7BFFu ? 0x7F800000u : 0u;
  return bits_as<float>(bits_as<std::uint32_t>(value) | infinite | sign);
}
inline void narrow(float x, Bf16& to) {
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  to.bits = x != x ? std::uint16_t{0x7FC0} : static_cast<std::uint16_t>(rounded);
}
inline void narrow(float x, Fp16& to) {
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu, sign = bits >> 16 & 0x8000u;
  std::uint32_t result = 0x7E00u;  // NaN
  if (magnitude < 0x38800000u) {   // below 2^-14: a sum with 0.5 is rounded where denormals end
    result = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3F000000u;
  } else if (magnitude < 0x47800000u) {  // below 2^16
    result = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  } else if (magnitude <= 0x7F800000u) {
    result = 0x7C00u;
  }
  to.bits = static_cast<std::uint16_t>(result | sign);
}

#endif

// ---- Several

/// Elements of a T in 16 bytes.
template <typename T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));

template <int kCount>
struct Floats {
  float at[kCount];
  STRATA_DEVICE float& operator[](int i) { return at[i]; }
  STRATA_DEVICE float operator[](int i) const { return at[i]; }
};

/// y[i] = f(i)
template <int kCount, typename F>
STRATA_DEVICE Floats<kCount> floats(F f) {
  Floats<kCount> result;
  STRATA_UNROLL
  for (int i = 0; i < kCount; ++i) result[i] = f(i);
  return result;
}

template <int kCount>
STRATA_DEVICE Floats<kCount> zeros() {
  return floats<kCount>([](int) { return 0.0f; });
}

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount <= 16 ? sizeof(T) * kCount : 16) Packed {
  T at[kCount];
};

template <typename T, int kCount>
STRATA_DEVICE bool is_whole(const T* at, std::int64_t left) {
  return left >= kCount && reinterpret_cast<std::uintptr_t>(at) % alignof(Packed<T, kCount>) == 0;
}

/// The first kCount of `left` elements, as fp32; zeros where there are fewer.
template <int kCount, typename T>
STRATA_DEVICE Floats<kCount> load(const T* from, std::int64_t left) {
  if (is_whole<T, kCount>(from, left)) {
    const auto packed = *reinterpret_cast<const Packed<T, kCount>*>(from);
    return floats<kCount>([&](int i) { return widen(packed.at[i]); });
  }
  return floats<kCount>([&](int i) { return i < left ? widen(from[i]) : 0.0f; });
}

/// The first `left` of them, at most kCount.
template <int kCount, typename T>
STRATA_DEVICE void store(const Floats<kCount>& values, T* to, std::int64_t left) {
  if (is_whole<T, kCount>(to, left)) {
    Packed<T, kCount> packed;
    STRATA_UNROLL
    for (int i = 0; i < kCount; ++i) narrow(values[i], packed.at[i]);
    *reinterpret_cast<Packed<T, kCount>*>(to) = packed;
    return;
  }
  STRATA_UNROLL
  for (int i = 0; i < kCount; ++i)
    if (i < left) narrow(values[i], to[i]);
}

/// Calls body(i, left) where a thread's own vector of an array of n begins at i, with `left` to the end.
template <typename T, int kThreads, typename Body>
STRATA_DEVICE void each_vector(Block<kThreads>& block, std::int64_t n, Body body) {
  block.each([&](int thread) {
    const std::int64_t i = (block.index() * kThreads + thread) * kWide<T>;
    if (i < n) body(i, n - i);
  });
}

/// The blocks that this takes.
template <typename T>
std::int64_t vector_blocks(std::int64_t n, int threads) {
  return blocks_for(n, std::int64_t{threads} * kWide<T>);
}

/// The same for R rows of C columns, none of whose vectors crosses the end of a row.
struct RowVectors {
  std::int64_t rows, columns, a_row;  // a_row: vectors

  template <typename T>
  static RowVectors of(std::int64_t rows, std::int64_t columns) {
    return {rows, columns, blocks_for(columns, kWide<T>)};
  }
  std::int64_t blocks(int threads) const { return blocks_for(rows * a_row, threads); }

  /// Calls body(row, column, left), `left` to the end of the row.
  template <typename T, int kThreads, typename Body>
  STRATA_DEVICE void each(Block<kThreads>& block, Body body) const {
    block.each([&](int thread) {
      const std::int64_t vector = block.index() * kThreads + thread;
      if (vector >= rows * a_row) return;
      const std::int64_t row = vector / a_row, column = (vector - row * a_row) * kWide<T>;
      body(row, column, columns - column);
    });
  }
};

// ---- Mathematics that is the same on both machines

/// e^x within 1.1 ulp; 0 below -87.3, where results leave the normal numbers, and infinite above 88.37,
/// half a power of two early. Own, because each machine's library has its own bits.
/// Source  the split and the polynomial of Cephes' expf (Moshier 1989).
STRATA_DEVICE float exp(float x) {
  constexpr float kLog2e = 1.44269504f,
                  kShift = 12582912.0f;  // 1.5 * 2^23: rounds to whole numbers
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const float shifted = fma(x, kLog2e, kShift), n = shifted - kShift;
  float r = fma(n, -kLn2High, x);
  r = fma(n, -kLn2Low, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  p = fma(p, r * r, r) + 1.0f;
  const float power = bits_as<float>((bits_as<std::uint32_t>(shifted) << 23) + 0x3F800000u);
  const float result = p * power;
  // 2^128 has no bits: the last step of the range is left out. A NaN fails both and stays one.
  return x > 88.3762626647949f ? bits_as<float>(0x7F800000u) : x < -87.3f ? 0.0f : result;
}

}  // namespace strata::simt
