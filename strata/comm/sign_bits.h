/// Packs the signs of vectors into one bit an element, and adds signs times a scale.
///
/// A bit is 1 for negative elements, and the sign of 0 is +1. Element i is bit i % 8 of byte i / 8.
///
/// Shapes   n elements and (n + 7) / 8 bytes; bits after the last element are 0.
/// Threads  the calling thread's pool; threads change no bit.
#pragma once

#include <cstdint>
#include <span>

namespace strata {

constexpr std::int64_t sign_bytes(std::int64_t elements) { return (elements + 7) / 8; }

/// In fp64, over blocks of 1,024 elements, then in the order of the blocks.
double sum_of_magnitudes(std::span<const float> x);

/// Writes the signs of x, and subtracts scale times them from x.
void take_signs(std::span<float> x, float scale, std::uint8_t* bits);

/// Adds scale times the signs to `sum`.
void add_signs(const std::uint8_t* bits, float scale, std::span<float> sum);

/// Sets x to scale times the signs.
void set_to_signs(const std::uint8_t* bits, float scale, std::span<float> x);

}  // namespace strata
