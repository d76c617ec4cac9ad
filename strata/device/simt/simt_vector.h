/// Moves elements of fp32, bf16 or fp16 between memory and a kernel's registers, where they are
/// fp32.
///
/// A thread moves several elements at once: 16 bytes if they are aligned to 16 bytes, else one by
/// one. Narrowing rounds to nearest even; a NaN stays one (bf16: 0x7FC0).
///
/// A kernel checks the alignment of all its arrays once and has a body for each case: the aligned
/// one has no branches, so all its reads are issued before the first is waited for.
///
/// Example  each_vector<T>(block, n, lie_whole(x, y), [&](std::int64_t i, auto left) {
///            const auto v = load<kWide<T>>(x + i, left);   // zeros after the end
///            store(v, y + i, left);                        // writes nothing after it
///          });
/// Errors   InternalError on the host: a vector access to an unaligned address.
#pragma once

#include <cstdint>
#include <cstring>

#include "strata/base/element.h"
#include "strata/device/simt/simt.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace strata::simt {

using kernels::Bf16;
using kernels::Fp16;

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
  if (magnitude < 0x38800000u) {   // below 2^-14: adding 0.5 rounds at the last denormal bit
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

/// Elements as stored in memory. Words, not elements, so that the compiler unpacks them only where
/// they are used: unpacking waits for the read.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount <= 16 ? sizeof(T) * kCount : 16) Packed {
  static constexpr int kInWord = 4 / static_cast<int>(sizeof(T));
  static_assert(kCount % kInWord == 0);
  std::uint32_t words[kCount / kInWord];

  STRATA_DEVICE T get(int i) const {
    if constexpr (kInWord == 1) {
      return bits_as<T>(words[i]);
    } else {
      return bits_as<T>(static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16)));
    }
  }
};

/// Packs f(0), f(1), ...
template <typename T, int kCount, typename F>
STRATA_DEVICE Packed<T, kCount> packed(F f) {
  Packed<T, kCount> result;
  STRATA_UNROLL
  for (int word = 0; word < kCount / result.kInWord; ++word) {
    if constexpr (result.kInWord == 1) {
      result.words[word] = bits_as<std::uint32_t>(f(word));
    } else {
      const std::uint32_t low = bits_as<std::uint16_t>(f(2 * word));
      const std::uint32_t high = bits_as<std::uint16_t>(f(2 * word + 1));
      result.words[word] = high << 16 | low;
    }
  }
  return result;
}

#ifdef __CUDACC__

template <typename P>
STRATA_DEVICE P read_packed(const void* from) {
  return *static_cast<const P*>(from);
}

// Uses explicit vector stores: nvcc splits an assignment, and if another branch writes the same
// addresses one by one, it doesn't always merge it again.
template <typename P>
STRATA_DEVICE void write_packed(const P& bits, void* to) {
  constexpr int kWords = sizeof(P) / 4;
  auto* words = static_cast<std::uint32_t*>(to);
  if constexpr (kWords % 4 == 0) {
    STRATA_UNROLL
    for (int i = 0; i < kWords; i += 4)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(words + i), "r"(bits.words[i]),
                   "r"(bits.words[i + 1]), "r"(bits.words[i + 2]), "r"(bits.words[i + 3])
                   : "memory");
  } else {
    static_assert(kWords == 2);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(words), "r"(bits.words[0]),
                 "r"(bits.words[1])
                 : "memory");
  }
}

#else

// Checks alignment, because a GPU faults on a misaligned vector access.
template <typename P>
bool lies_on_border(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % alignof(P) == 0;
}

template <typename P>
P read_packed(const void* from) {
  STRATA_CHECK(lies_on_border<P>(from), "device.load");
  P bits;
  std::memcpy(&bits, from, sizeof(P));
  return bits;
}

template <typename P>
void write_packed(const P& bits, void* to) {
  STRATA_CHECK(lies_on_border<P>(to), "device.store");
  std::memcpy(to, &bits, sizeof(P));
}

#endif

/// The rest of an array from a vector on: either the number of its elements, or `Whole`: all
/// elements of an aligned vector.
struct Whole {
  STRATA_DEVICE explicit constexpr Whole(std::int64_t /*left*/) {}
  STRATA_DEVICE constexpr operator std::int64_t() const { return INT64_MAX; }
};

/// Whether all arrays are aligned to 16 bytes; null ones are.
template <typename... T>
STRATA_HOST_DEVICE bool lie_whole(const T*... arrays) {
  return ((reinterpret_cast<std::uintptr_t>(arrays) | ...) % 16) == 0;
}

/// Reads the bits of the first kCount of `left` elements; zeros if there are fewer.
template <int kCount, typename T>
STRATA_DEVICE Packed<T, kCount> fetch(const T* from, Whole /*left*/) {
  return read_packed<Packed<T, kCount>>(from);
}
template <int kCount, typename T>
STRATA_DEVICE Packed<T, kCount> fetch(const T* from, std::int64_t left) {
  return packed<T, kCount>([&](int i) { return i < left ? from[i] : T{}; });
}

template <typename T, int kCount>
STRATA_DEVICE Floats<kCount> widened(const Packed<T, kCount>& bits) {
  return floats<kCount>([&](int i) { return widen(bits.get(i)); });
}

/// Reads the elements as fp32.
template <int kCount, typename T, typename Left>
STRATA_DEVICE Floats<kCount> load(const T* from, Left left) {
  return widened(fetch<kCount>(from, left));
}

/// Writes the first `left` elements, at most kCount.
template <int kCount, typename T>
STRATA_DEVICE void put(const Packed<T, kCount>& bits, T* to, Whole /*left*/) {
  write_packed(bits, to);
}
template <int kCount, typename T>
STRATA_DEVICE void put(const Packed<T, kCount>& bits, T* to, std::int64_t left) {
  STRATA_UNROLL
  for (int i = 0; i < kCount; ++i)
    if (i < left) to[i] = bits.get(i);
}

/// Writes fp32 values as elements.
template <int kCount, typename T, typename Left>
STRATA_DEVICE void store(const Floats<kCount>& values, T* to, Left left) {
  const auto bits = packed<T, kCount>([&](int i) {
    T narrowed;
    narrow(values[i], narrowed);
    return narrowed;
  });
  put(bits, to, left);
}

/// Calls body(i, left) for every vector of the thread, which begins at i in an array of n. whole:
/// the arrays are aligned.
template <typename T, int kThreads, typename Body>
STRATA_DEVICE void each_vector(Block<kThreads>& block, std::int64_t n, bool whole, Body body) {
  block.each([&](int thread) {
    const std::int64_t i = (block.index() * kThreads + thread) * kWide<T>;
    if (i >= n) return;
    if (whole && n - i >= kWide<T>) {
      body(i, Whole(n - i));
    } else {
      body(i, n - i);
    }
  });
}

/// The number of blocks that each_vector() needs.
template <typename T>
std::int64_t vector_blocks(std::int64_t n, int threads) {
  return blocks_for(n, std::int64_t{threads} * kWide<T>);
}

/// Does the same for R rows of C columns; no vector crosses the end of a row.
struct RowVectors {
  std::int64_t rows, columns, a_row;  // a_row: vectors per row

  template <typename T>
  static RowVectors of(std::int64_t rows, std::int64_t columns) {
    return {rows, columns, blocks_for(columns, kWide<T>)};
  }
  std::int64_t blocks(int threads) const { return blocks_for(rows * a_row, threads); }

  /// Calls body(row, column, left), `left` to the end of the row. whole: arrays and row strides are
  /// aligned.
  template <typename T, int kThreads, typename Body>
  STRATA_DEVICE void each(Block<kThreads>& block, bool whole, Body body) const {
    block.each([&](int thread) {
      const std::int64_t vector = block.index() * kThreads + thread;
      if (vector >= rows * a_row) return;
      const std::int64_t row = vector / a_row, column = (vector - row * a_row) * kWide<T>;
      if (whole && a_row * kWide<T> == columns) {
        body(row, column, Whole(columns - column));
      } else {
        body(row, column, columns - column);
      }
    });
  }
};

}  // namespace strata::simt
