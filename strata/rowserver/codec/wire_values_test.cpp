#include "strata/rowserver/codec/wire_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr WirePrecision kPrecisions[] = {WirePrecision::kFp32, WirePrecision::kFp16,
                                         WirePrecision::kScaledFp16, WirePrecision::kScaledInt8};

double bound_of(WirePrecision precision, double value, double largest) {
  switch (precision) {
    case WirePrecision::kFp32:
      return 0;
    case WirePrecision::kFp16:
      return std::ldexp(std::fabs(value), -11) + 0x1p-25;
    case WirePrecision::kScaledFp16:
      return std::ldexp(std::fabs(value), -11) + std::ldexp(largest, -24);
    case WirePrecision::kScaledInt8:
      return largest / 252 + std::numeric_limits<float>::denorm_min();
  }
  return 0;
}

// Rows of all magnitudes: 16 values that span up to 12 powers of ten.
std::vector<float> values_for_test(int rows, int width, float most) {
  std::mt19937_64 random(7);
  std::vector<float> values;
  std::uniform_real_distribution<double> exponent(-12, 0), sign(-1, 1);
  for (int i = 0; i < rows * width; ++i)
    values.push_back(
        static_cast<float>(std::copysign(std::pow(10, exponent(random)) * most, sign(random))));
  values[0] = 0, values[1] = -0.0f;
  return values;
}

// Values beyond one block, at any address.
TEST(WireValues, DecodeManyRowsToRoundedValues) {
  for (const WirePrecision precision : kPrecisions)
    for (const int width : {1, 7, 64, 4096}) {
      const int rows = width == 4096 ? 3 : 9000 / width;
      const std::vector<float> values = values_for_test(rows, width, 100.0f);
      std::vector<float> rounded = values;
      round_values(precision, rounded, width);
      std::vector<std::byte> bytes(3);
      encode_values(precision, values, width, bytes);
      ASSERT_EQ(bytes.size(), 3 + values_bytes(precision, static_cast<std::size_t>(rows), width));
      EXPECT_EQ(decoded_values(precision, std::span(bytes).subspan(3), width), rounded)
          << name_of(precision) << ", width " << width;
    }
}

TEST(WireValues, StayWithinErrorBounds) {
  for (const WirePrecision precision : kPrecisions)
    for (const float most : {1e-30f, 1e-6f, 1.0f, 6e4f, 3e38f}) {
      if (precision == WirePrecision::kFp16 && most > 65504) continue;
      constexpr int kRows = 200, kWidth = 16;
      const std::vector<float> values = values_for_test(kRows, kWidth, most);
      std::vector<float> rounded = values;
      round_values(precision, rounded, kWidth);
      for (int row = 0; row < kRows; ++row) {
        double largest = 0;
        for (int k = 0; k < kWidth; ++k)
          largest = std::max(
              largest,
              std::fabs(static_cast<double>(values[static_cast<std::size_t>(row * kWidth + k)])));
        for (int k = 0; k < kWidth; ++k) {
          const auto i = static_cast<std::size_t>(row * kWidth + k);
          ASSERT_LE(std::fabs(static_cast<double>(values[i]) - static_cast<double>(rounded[i])),
                    bound_of(precision, static_cast<double>(values[i]), largest) + 1e-45)
              << name_of(precision) << " " << values[i] << " " << rounded[i] << " of " << largest;
        }
      }
    }
}

TEST(WireValues, RoundLikeEncodeAndDecode) {
  for (const WirePrecision precision : kPrecisions) {
    std::vector<float> values = values_for_test(50, 7, 3.0f);
    std::vector<std::byte> bytes;
    encode_values(precision, values, 7, bytes);
    EXPECT_EQ(bytes.size(), values_bytes(precision, 50, 7));
    std::vector<float> decoded(values.size());
    decode_values(precision, bytes, 7, decoded);
    round_values(precision, values, 7);
    EXPECT_EQ(std::memcmp(values.data(), decoded.data(), 4 * values.size()), 0)
        << name_of(precision);
  }
}

TEST(WireValues, DecodeEveryHalfExactly) {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7c00) == 0x7c00) continue;
    const auto bits = static_cast<std::uint16_t>(half);
    std::vector<std::byte> bytes(2), again;
    std::memcpy(bytes.data(), &bits, 2);
    std::vector<float> value(1);
    decode_values(WirePrecision::kFp16, bytes, 1, value);
    encode_values(WirePrecision::kFp16, value, 1, again);
    ASSERT_EQ(bytes, again) << half;
    // By IEEE 754: sign, exponent, fraction.
    const int exponent = static_cast<int>(half >> 10) & 31;
    const double fraction = half & 0x3ff;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(static_cast<double>(value[0]), half & 0x8000 ? -magnitude : magnitude);
  }
}

TEST(WireValues, HalvesRoundToNearestEven) {
  std::vector<float> values{1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 65519,
                            0x1p-25f,     3 * 0x1p-25f,     -0x1.8p-25f};
  round_values(WirePrecision::kFp16, values, 6);
  EXPECT_EQ(values, (std::vector<float>{1, 1 + 0x1p-9f, 65504, 0, 0x1p-23f, -0x1p-24f}));
}

TEST(WireValues, RefuseNonFiniteAndTooLargeValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const WirePrecision precision : kPrecisions)
    for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values{1, bad, 2};
      std::vector<std::byte> bytes;
      EXPECT_THROW(round_values(precision, values, 3), UserError);
      EXPECT_THROW(encode_values(precision, values, 3, bytes), UserError);
    }
  std::vector<float> large{65520};
  EXPECT_THROW(round_values(WirePrecision::kFp16, large, 1), UserError);
  std::vector<std::byte> short_bytes(7);
  std::vector<float> values(4);
  EXPECT_THROW(decode_values(WirePrecision::kFp16, short_bytes, 4, values), SystemError);
}

}  // namespace
}  // namespace strata
