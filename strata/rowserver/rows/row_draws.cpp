#include "strata/rowserver/rows/row_draws.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "strata/base/philox.h"
#include "strata/rowserver/codec/row_rounding.h"
#include "strata/rowserver/rows/row_layout.h"

namespace strata {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Uniform in (0, 1).
double uniform(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

// Logarithm of x in (0, 1): exponent and 2 atanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)).
double logarithm(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | std::uint64_t{1023} << 52);
  if (m > 1.4142135623730951) {
    m /= 2;
    ++exponent;
  }
  const double t = (m - 1) / (m + 1), square = t * t;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * 0.6931471805599453 + 2 * t * sum;
}

// Sine of x in [-pi/2, pi/2] by its Taylor series.
double sine(double x) {
  const double square = x * x;
  double sum = 1;
  for (int k = 20; k >= 2; k -= 2) sum = 1 - square / (k * (k + 1)) * sum;
  return x * sum;
}

// sin(2 pi turn) for turn in [0, 1.25].
double sine_of_turn(double turn) {
  if (turn >= 1) turn -= 1;
  if (turn > 0.75) return sine(2 * kPi * (turn - 1));
  if (turn > 0.25) return sine(2 * kPi * (0.5 - turn));
  return sine(2 * kPi * turn);
}

}  // namespace

std::uint64_t feature_key(std::uint64_t seed, const std::string& name) {
  // FNV-1a; std::hash differs between standard libraries.
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001B3ull;
  return mix_key(seed, hash);
}

void draw_first_values(const RowInit& init, std::uint64_t feature_key, std::uint64_t id,
                       std::span<float> values) {
  if (init.kind == RowInit::Kind::kZeros) return std::fill(values.begin(), values.end(), 0.0f);
  std::uint32_t words[kMaxRowWidth + 32];
  const int width = static_cast<int>(values.size());
  kernels::draw_words(mix_key(feature_key, 0), id, 0, words, (width + 1) / 2 * 2);
  const auto scale = static_cast<float>(init.scale);
  for (int i = 0; i < width; ++i) {
    if (init.kind == RowInit::Kind::kUniform) {
      // Odd multiples of 2^-23 in (-1, 1), which are exact.
      const auto odd = static_cast<float>(words[i] >> 9 << 1 | 1);
      values[i] = (odd * 0x1p-23f - 1.0f) * scale;
    } else {
      const int pair = i / 2 * 2;
      const double radius = init.scale * std::sqrt(-2 * logarithm(uniform(words[pair])));
      const double turn = uniform(words[pair + 1]) + (i % 2 ? 0 : 0.25);
      values[i] = static_cast<float>(radius * sine_of_turn(turn));
    }
  }
}

}  // namespace strata
