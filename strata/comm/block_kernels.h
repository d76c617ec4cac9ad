/// Rounds floats to small integers and returns to floats, vectorised (Highway).
///
/// No torch and no state. Every operation is one that IEEE 754 rounds correctly and none are fused,
/// so bits depend on no instruction set. Integers are the nearest, ties to even.
///
/// Cost     one pass over the elements.
#pragma once

#include <cstdint>

namespace strata::kernels {

/// NaN if any element is no finite number; 0 for n = 0.
float largest_magnitude(const float* x, std::int64_t n);

/// to[i] = integer nearest to factor x[i], of at most 127 in magnitude.
void pack_int8(const float* x, float factor, std::uint8_t* to, std::int64_t n);

/// The same of at most 7, plus 8, two in a byte, the first in the low half; writes (n + 1) / 2.
void pack_int4(const float* x, float factor, std::uint8_t* to, std::int64_t n);

/// to[i] = scale times integer, or adds that.
void unpack_int8(const std::uint8_t* from, float scale, float* to, std::int64_t n);
void unpack_int4(const std::uint8_t* from, float scale, float* to, std::int64_t n);
void add_int8(const std::uint8_t* from, float scale, float* to, std::int64_t n);
void add_int4(const std::uint8_t* from, float scale, float* to, std::int64_t n);

}  // namespace strata::kernels
