#include "strata/serve/sampler.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace strata {
namespace {

constexpr std::array<float, 4> kLogits = {0.5f, 2.0f, -1.0f, 2.0f};

at::Tensor logits() { return at::tensor(at::ArrayRef<float>(kLogits)).unsqueeze(0); }

TEST(TokenSampler, TakesTheFirstOfTheLikeliestAtTemperatureZero) {
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(TokenSampler(0, i).choose(logits(), i), 1);
}

TEST(TokenSampler, DrawsInTheProportionsOfTheSoftmaxAtItsTemperature) {
  constexpr int kDraws = 20000;
  for (const double temperature : {0.5, 1.0, 3.0}) {
    std::array<double, 4> expected{}, counts{};
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += expected[i] = std::exp(kLogits[i] / temperature);
    const TokenSampler sampler(temperature, 7);
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<std::size_t>(sampler.choose(logits(), static_cast<std::uint32_t>(i)))];
    // Five standard deviations of a binomial at most.
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(counts[i] / kDraws, expected[i] / sum, 5 * 0.5 / std::sqrt(kDraws))
          << temperature;
  }
}

// Every bit of the seed counts, and so does the number of the token.
TEST(TokenSampler, IsKeyedBySeedAndNumber) {
  const auto drawn = [](std::uint64_t seed, std::uint32_t first) {
    std::string text;
    for (std::uint32_t i = 0; i < 32; ++i)
      text += std::to_string(TokenSampler(2, seed).choose(logits(), first + i));
    return text;
  };
  EXPECT_EQ(drawn(1, 0), drawn(1, 0));
  EXPECT_NE(drawn(1, 0), drawn(2, 0));
  EXPECT_NE(drawn(1, 0), drawn(1 + (std::uint64_t{1} << 32), 0));
  EXPECT_NE(drawn(1, 0), drawn(1, 32));
}

}  // namespace
}  // namespace strata
