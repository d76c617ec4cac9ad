#include "strata/rowserver/codec/row_rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "strata/base/every_target_test.h"
#include "strata/base/philox.h"

namespace strata::kernels {
namespace {

TEST(DrawWords, EqualPhiloxByCounter) {
  on_every_target([] {
    for (const int count : {1, 4, 5, 33, 257}) {
      const std::uint64_t key = 0x123456789ABCDEF0ull, id = 0xFEDCBA9876543210ull;
      std::vector<std::uint32_t> words((count + 31) / 32 * 32 + 1, 7);
      draw_words(key, id, 99, words.data(), count);
      for (int e = 0; e < count; ++e) {
        const PhiloxBlock block =
            philox({static_cast<std::uint32_t>(e / 4), 0x76543210u, 0xFEDCBA98u, 99},
                   {0x9ABCDEF0u, 0x12345678u});
        ASSERT_EQ(words[e], block[e % 4]) << e;
      }
      EXPECT_EQ(words.back(), 7u);
    }
  });
}

// ---- Stochastic rounding ------------------------------------------------------------------------

double fp16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

TEST(NearestFp16, RoundsToNearestEven) {
  on_every_target([] {
    std::vector<float> values;
    std::vector<std::uint16_t> expected;
    const auto add = [&](double value, std::uint16_t half) {
      values.push_back(static_cast<float>(value)), expected.push_back(half);
      values.push_back(static_cast<float>(-value)), expected.push_back(half | 0x8000);
    };
    for (std::uint16_t half = 0; half < 0x7C00; ++half) {
      const double value = fp16_value(half);
      const double next = half == 0x7BFF ? 65536.0 : fp16_value(half + 1);
      add(value, half);
      const auto middle = static_cast<float>((value + next) / 2);  // 12 bits: exact
      add(middle, half + half % 2);
      add(std::nextafter(middle, 0.0f), half);
      add(std::nextafter(middle, 1e9f), half + 1);
    }
    for (const double most : {1e5, 1e30, 3.4e38}) add(most, 0x7C00);
    add(1e-30, 0);
    add(std::numeric_limits<double>::infinity(), 0x7C00);
    std::vector<std::uint16_t> got(values.size() + 1, 7);
    nearest_fp16(values.data(), got.data(), static_cast<int>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(got[i], expected[i]) << values[i];
    EXPECT_EQ(got.back(), 7);
    for (const int width : {1, 3, 15, 17, 33}) {  // widths with a partial vector
      std::vector<std::uint16_t> some(static_cast<std::size_t>(width) + 1, 7);
      nearest_fp16(values.data() + 5000, some.data(), width);
      for (int i = 0; i < width; ++i)
        ASSERT_EQ(some[static_cast<std::size_t>(i)], expected[static_cast<std::size_t>(5000 + i)]);
      ASSERT_EQ(some.back(), 7);
    }
  });
}

TEST(RoundFp16, ConvertsEveryNumberBackExactly) {
  on_every_target([] {
    std::vector<std::uint16_t> bits(1 << 16);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(bits.size());
    widen_fp16(bits.data(), wide.data(), static_cast<int>(bits.size()));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if ((i & 0x7FFF) > 0x7C00) {
        ASSERT_TRUE(std::isnan(wide[i]));
      } else if ((i & 0x7FFF) == 0x7C00) {
        ASSERT_EQ(wide[i], (i >> 15 ? -1 : 1) * std::numeric_limits<float>::infinity());
      } else {
        ASSERT_EQ(wide[i], static_cast<float>(fp16_value(bits[i]))) << i;
      }
    }
    // Converting back and forth changes nothing: a number of fp16 is its own neighbour for any
    // random word.
    const std::vector<std::uint32_t> words(bits.size(), 0xFFFFFFFFu);
    std::vector<std::uint16_t> again(bits.size());
    round_fp16(wide.data(), words.data(), again.data(), static_cast<int>(bits.size()));
    for (std::size_t i = 0; i < bits.size(); ++i)
      if ((i & 0x7FFF) <= 0x7C00) {
        ASSERT_EQ(again[i], bits[i]) << i;
      }
  });
}

TEST(RoundFp16, KeepsNumbersWithoutNeighbours) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float values[] = {infinity, -infinity, 1e30f, -70000.0f, std::nanf("")};
  const std::uint32_t words[32] = {1, 2, 3, 4, 5};
  std::uint16_t out[5];
  on_every_target([&] {
    round_fp16(values, words, out, 5);
    EXPECT_EQ(out[0], 0x7C00);
    EXPECT_EQ(out[1], 0xFC00);
    EXPECT_EQ(out[2], 0x7BFF);  // the largest number
    EXPECT_EQ(out[3], 0xFBFF);
    EXPECT_EQ(out[4] & 0x7FFF, 0x7E00);
  });
}

// Mean error of many rounded values, in standard deviations of that mean.
template <typename Rounded>
double mean_error(double exact, double below, double above, int draws, Rounded rounded) {
  double sum = 0;
  for (int step = 0; step < draws; ++step) {
    const double value = rounded(static_cast<std::uint32_t>(step));
    EXPECT_TRUE(value == below || value == above) << value << " for " << exact;
    sum += value - exact;
  }
  const double p = (exact - below) / (above - below);
  const double sigma = (above - below) * std::sqrt(p * (1 - p) / draws);
  return sum / draws / sigma;
}

TEST(RoundFp16, ReturnsNeighbourWithoutBias) {
  on_every_target([] {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> exponent(-22, 15);
    constexpr int kNumbers = 40;
    double sum = 0;
    for (int k = 0; k < kNumbers; ++k) {
      const auto value = static_cast<float>(std::exp2(exponent(random)) * (k % 2 ? 1 : -1));
      const double ulp = std::ldexp(1, std::max(-24, std::ilogb(value) - 10));
      const double below = std::floor(value / ulp) * ulp;
      if (below == value) continue;
      const double error = mean_error(value, below, below + ulp, 4000, [&](std::uint32_t step) {
        std::uint32_t words[32];
        draw_words(5, static_cast<std::uint64_t>(k), step, words, 1);
        std::uint16_t out;
        round_fp16(&value, words, &out, 1);
        return fp16_value(out);
      });
      sum += error;
      EXPECT_LT(std::abs(error), 4.5) << value;  // the largest of 40 numbers
    }
    EXPECT_LT(std::abs(sum / std::sqrt(kNumbers)), 3);
  });
}

TEST(RoundInt8, ReturnsNeighbourWithoutBias) {
  on_every_target([] {
    constexpr int kWidth = 21, kDraws = 4000;
    std::mt19937 random(4);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(kWidth);
    for (float& value : values) value = uniform(random);
    values[20] = -1.0f;  // determines the scale
    std::vector<double> sums(kWidth);
    float scale = 0;
    for (std::uint32_t step = 0; step < kDraws; ++step) {
      std::uint32_t words[32];
      draw_words(6, 7, step, words, kWidth);
      std::int8_t out[kWidth];
      scale = round_int8(values.data(), words, out, kWidth);
      ASSERT_EQ(scale, 1.0f / 127.0f);
      std::vector<float> wide(kWidth);
      widen_int8(out, scale, wide.data(), kWidth);
      for (int i = 0; i < kWidth; ++i) {
        ASSERT_LT(std::abs(wide[i] - values[i]), scale * 1.0001f);
        sums[i] += wide[i] - double{values[i]};
      }
    }
    double sum = 0, variance = 0;
    for (int i = 0; i < kWidth; ++i) {
      const double at = values[i] / double{scale}, p = at - std::floor(at);
      const double sigma = scale * std::sqrt(p * (1 - p) / kDraws) + 1e-9;
      EXPECT_LT(std::abs(sums[i] / kDraws), 4.5 * sigma) << i;
      sum += sums[i] / kDraws;
      variance += sigma * sigma;
    }
    EXPECT_LT(std::abs(sum), 3 * std::sqrt(variance));
  });
}

TEST(RoundInt8, ReadsNonFiniteRowAsNan) {
  const float values[] = {1.0f, std::numeric_limits<float>::infinity(), 2.0f};
  const std::uint32_t words[32] = {};
  std::int8_t out[3];
  on_every_target([&] {
    const float scale = round_int8(values, words, out, 3);
    float wide[3];
    widen_int8(out, scale, wide, 3);
    for (const float value : wide) EXPECT_TRUE(std::isnan(value));
    const float zeros[3] = {};
    EXPECT_EQ(round_int8(zeros, words, out, 3), 0.0f);
  });
}

}  // namespace
}  // namespace strata::kernels
