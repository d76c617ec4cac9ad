/// Computes in long double and rounds after every operation, which gives the bits that IEEE 754
/// requires for fp32; the oracle of vectorised updates.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "strata/base/every_target_test.h"

namespace strata::kernels {

using Wide = long double;

inline float times(float a, float b) { return static_cast<float>(Wide(a) * Wide(b)); }
inline float plus(float a, float b) { return static_cast<float>(Wide(a) + Wide(b)); }
inline float minus(float a, float b) { return static_cast<float>(Wide(a) - Wide(b)); }
inline float over(float a, float b) { return static_cast<float>(Wide(a) / Wide(b)); }
inline float root(float a) { return static_cast<float>(std::sqrt(Wide(a))); }

/// Kernels write every NaN with the same bits.
inline std::uint32_t bits_of(float x) {
  return std::isnan(x) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(x);
}

/// Random values; `wild`: random bits, so all magnitudes, denormals, infinities and NaNs.
inline std::vector<float> random_floats(std::int64_t n, float size, bool wild, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i)
    values.push_back(wild ? std::bit_cast<float>(static_cast<std::uint32_t>(random()))
                          : normal(random));
  return values;
}

/// Such values without a sign.
inline std::vector<float> random_squares(std::int64_t n, float size, bool wild, unsigned seed) {
  std::vector<float> values = random_floats(n, size, wild, seed);
  for (float& value : values) value = std::abs(value);
  return values;
}

/// 0, 1, and the lengths beside those of one and several vectors of any instruction set.
inline constexpr std::int64_t kTestedLengths[] = {0,  1,  3,  4,  5,  7,  8,  9,
                                                  15, 16, 17, 31, 33, 63, 65, 1000};

/// Expects that f(arrays, from, to) makes `expected` of `before`, for all n elements at once and
/// for two halves, on every instruction set. Arrays have bits(), which are comparable.
template <typename Arrays, typename F>
void expect_bits_of_elements(const Arrays& before, const Arrays& expected, std::int64_t n, F f) {
  on_every_target([&] {
    Arrays whole = before, halves = before;
    f(whole, 0, n);
    f(halves, 0, n / 2);
    f(halves, n / 2, n);
    EXPECT_EQ(whole.bits(), expected.bits()) << n;
    EXPECT_EQ(halves.bits(), expected.bits()) << n;
  });
}

}  // namespace strata::kernels
