// Compares codes with a loop over single elements, by the definition in the header.
#include "strata/comm/block_code.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "strata/comm/rank_cases_test.h"
#include "strata/device/thread_pool.h"

namespace strata {
namespace {

using enum TrafficFormat;

constexpr std::int64_t kBlock = 64;

// Weights of odd lengths with padding between them, and a vector at the end that is copied.
const std::vector<FlatRange> kWeights{{0, 1001}, {1008, 5000}, {5008, 5011}, {5024, 9000}};
constexpr std::int64_t kNumel = 9100;

at::Tensor values(std::int64_t numel = kNumel) {
  return example_values(2, numel) * at::arange(numel, at::kFloat).mul(0.01f).cos().exp();
}

// What the code of x stands for, element by element.
std::vector<float> expected(const std::vector<float>& x, const std::vector<FlatRange>& weights,
                            double most, std::int64_t block) {
  std::vector<float> result = x;
  for (const FlatRange& weight : weights)
    for (std::int64_t i = weight.begin; i < weight.end; ++i) {
      const std::int64_t begin = std::max(i / block * block, weight.begin);
      const std::int64_t end = std::min((i / block + 1) * block, weight.end);
      double largest = 0;
      for (std::int64_t j = begin; j < end; ++j)
        largest = std::max(largest, std::fabs(double(x[static_cast<std::size_t>(j)])));
      const auto at = static_cast<std::size_t>(i);
      result[at] = static_cast<float>(
          largest > 0 ? std::nearbyint(x[at] / largest * most) * largest / most : 0);
    }
  return result;
}

std::vector<float> floats(const at::Tensor& x) {
  const at::Tensor all = x.to(at::kFloat).contiguous();
  return {all.const_data_ptr<float>(), all.const_data_ptr<float>() + all.numel()};
}

at::Tensor decoded(const BlockCode& code, const at::Tensor& x, FlatRange range) {
  const at::Tensor result = at::full_like(x, -7);
  code.decode(code.encode(x, range), range, result);
  return result;
}

TEST(BlockCode, StandsForTheNearestIntegersOfEveryBlock) {
  for (const auto& [format, most] : {std::pair(kInt8, 127.0), std::pair(kInt4, 7.0)}) {
    const BlockCode code(format, kBlock, kWeights);
    const at::Tensor x = values();
    const std::vector<float> got = floats(decoded(code, x, {0, kNumel}));
    const std::vector<float> want = expected(floats(x), kWeights, most, kBlock);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 2e-6f * std::fabs(want[i])) << name_of(format) << ' ' << i;
  }
}

TEST(BlockCode, HasTheBytesOfItsIntegersAndScales) {
  const std::vector<FlatRange> one{{0, 1 << 20}};
  const FlatRange all{0, 1 << 20};
  EXPECT_EQ(BlockCode(kInt8, 128, one).bytes(all, at::kFloat), (1 << 20) + 4 * (1 << 13));
  EXPECT_EQ(BlockCode(kInt4, 128, one).bytes(all, at::kFloat), (1 << 19) + 4 * (1 << 13));
  EXPECT_EQ(BlockCode(kInt4, 128, {}).bytes(all, at::kBFloat16), 2 << 20);
  EXPECT_EQ(BlockCode(kInt8, 128, one).bytes({2048, 2048}, at::kFloat), 0);
}

// Half a step of the integers at most.
TEST(BlockCode, ErrsByHalfAStepAtMost) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const at::Tensor x = at::zeros({kNumel});
  for (std::int64_t i = 0; i < kNumel; ++i) x.data_ptr<float>()[i] = normal(random);
  for (const auto& [format, most] : {std::pair(kInt8, 127.0f), std::pair(kInt4, 7.0f)}) {
    const BlockCode code(format, kBlock, {{0, kNumel}});
    const at::Tensor error = (decoded(code, x, {0, kNumel}) - x).abs();
    for (std::int64_t i = 0; i < kNumel; i += kBlock) {
      const std::int64_t n = std::min(kBlock, kNumel - i);
      const float largest = x.narrow(0, i, n).abs().max().item<float>();
      EXPECT_LE(error.narrow(0, i, n).max().item<float>(), 0.5001f * largest / most);
    }
  }
}

// Ranks cut buffers differently, and receive the same numbers.
TEST(BlockCode, IsTheSameForAnyCutInWholeBlocks) {
  for (const TrafficFormat format : {kInt8, kInt4}) {
    const BlockCode code(format, kBlock, kWeights);
    const at::Tensor x = values(), whole = decoded(code, x, {0, kNumel});
    for (const int parts : {2, 3, 20}) {
      at::Tensor joined = at::zeros({kNumel});
      for (const FlatRange part : cut({0, kNumel}, parts))
        joined.narrow(0, part.begin, part.size())
            .copy_(decoded(code, x.narrow(0, part.begin, part.size()), part));
      EXPECT_TRUE(at::equal(joined, whole)) << parts;
    }
  }
}

// Tensor-parallel ranks have equal weights beside different ones, and both must stay so.
TEST(BlockCode, OfAWeightDoesNotDependOnTheWeightsBeside) {
  const BlockCode code(kInt4, kBlock, kWeights);
  const at::Tensor x = values(), other = x.clone();
  other.narrow(0, 0, 1008).mul_(100);
  other.narrow(0, 5000, kNumel - 5000).mul_(0.01);
  const FlatRange all{0, kNumel};
  EXPECT_TRUE(at::equal(decoded(code, x, all).narrow(0, 1008, 3992),
                        decoded(code, other, all).narrow(0, 1008, 3992)));
}

TEST(BlockCode, AddsWhatItStandsFor) {
  for (const TrafficFormat format : {kInt8, kInt4}) {
    const BlockCode code(format, kBlock, kWeights);
    const at::Tensor x = values(), sum = example_values(1, kNumel), before = sum.clone();
    code.add(code.encode(x, {0, kNumel}), {0, kNumel}, sum);
    EXPECT_TRUE(at::equal(sum, before + decoded(code, x, {0, kNumel})));
  }
}

TEST(BlockCode, OfSixteenBitsIsThatOfTheirFloats) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf})
    for (const TrafficFormat format : {kInt8, kInt4}) {
      const BlockCode code(format, kBlock, kWeights);
      const at::Tensor x = values().mul(1e-3).to(dtype);
      const FlatRange all{0, kNumel};
      EXPECT_TRUE(at::equal(decoded(code, x, all), decoded(code, x.to(at::kFloat), all).to(dtype)));
    }
}

// A skipped step finds what has overflowed.
TEST(BlockCode, OfABlockWithNoFiniteNumberIsNaN) {
  for (const TrafficFormat format : {kInt8, kInt4})
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN(), -std::nanf("")}) {
      const BlockCode code(format, kBlock, {{0, 256}});
      const at::Tensor x = values(256);
      x[100].fill_(bad);
      const at::Tensor nan = at::isnan(decoded(code, x, {0, 256}));
      EXPECT_TRUE(nan.narrow(0, 64, 64).all().item<bool>());
      EXPECT_EQ(nan.sum().item<std::int64_t>(), 64);
    }
}

TEST(BlockCode, OfZerosAndDenormalNumbersIsZero) {
  for (const auto& [format, most] : {std::pair(kInt8, 127.0f), std::pair(kInt4, 7.0f)}) {
    const BlockCode code(format, kBlock, {{0, 256}});
    const float least = most * std::numeric_limits<float>::min();
    for (const float x : {0.0f, -0.0f, 1e-40f, 0.4f * least}) {
      const at::Tensor got = decoded(code, at::full({256}, x), {0, 256});
      EXPECT_TRUE(got.eq(0).all().item<bool>()) << x;
    }
  }
  // The largest and the smallest numbers with a scale.
  for (const float x : {3e38f, 2e-36f}) {
    const at::Tensor got =
        decoded(BlockCode(kInt8, kBlock, {{0, 256}}), at::full({256}, x), {0, 256});
    EXPECT_NEAR(got[7].item<float>() / x, 1, 1e-6);
  }
}

TEST(BlockCode, DependsOnNoThreads) {
  const std::int64_t numel = 300000;
  const BlockCode code(kInt4, 128, {{0, 150001}, {150016, numel}});
  const at::Tensor x = values(numel);
  const auto run = [&](int threads) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool);
    return decoded(code, x, {0, numel});
  };
  EXPECT_TRUE(at::equal(run(4), run(1)));
}

}  // namespace
}  // namespace strata
