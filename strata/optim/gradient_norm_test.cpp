#include "strata/optim/gradient_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "strata/base/errors.h"
#include "strata/base/every_target_test.h"

namespace strata {
namespace {

// The documented order, element by element: 16 sums per block, added pairwise.
double reference(const at::Tensor& gradients) {
  const float* x = gradients.const_data_ptr<float>();
  double total = 0;
  for (std::int64_t begin = 0; begin < gradients.numel(); begin += kFlatBlock) {
    std::array<double, 16> sums{};
    const std::int64_t end = std::min(begin + kFlatBlock, gradients.numel());
    for (std::int64_t i = begin; i < end; ++i) sums[i % 16] += static_cast<double>(x[i]) * x[i];
    for (int width = 8; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
    }
    total += sums[0];
  }
  return total;
}

TEST(SumOfSquares, EqualsSerialReferenceBitForBit) {
  at::manual_seed(3);
  for (const std::int64_t numel : {0, 1, 15, 16, 17, 1023, 1024, 1025, 5 * 1024 + 7, 1 << 18}) {
    const at::Tensor gradients = at::randn({numel});
    EXPECT_EQ(sum_of_squares(gradients), reference(gradients)) << numel << " elements";
  }
}

TEST(SumOfSquares, HasSameBitsWithOneAndTwoThreads) {
  at::manual_seed(4);
  const at::Tensor gradients = at::randn({(1 << 20) + 33});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = sum_of_squares(gradients);
  at::set_num_threads(2);
  const double two = sum_of_squares(gradients);
  at::set_num_threads(threads);
  EXPECT_EQ(one, two);
}

TEST(SumOfSquares, HasSameBitsOnEveryInstructionSet) {
  at::manual_seed(5);
  const at::Tensor gradients = at::randn({3 * 1024 + 5});
  const double best = sum_of_squares(gradients);
  on_every_target([&] { EXPECT_EQ(sum_of_squares(gradients), best); });
}

TEST(SumOfSquares, IsExactIfFp32WouldOverflowOrVanish) {
  EXPECT_EQ(sum_of_squares(at::full({1024}, 0x1p100f)), 0x1p210);
  EXPECT_EQ(sum_of_squares(at::full({1024}, 0x1p-100f)), 0x1p-190);
}

TEST(SumOfSquares, RejectsBuffersThatAreNotFlatFp32) {
  EXPECT_THROW(sum_of_squares(at::zeros({16}, at::kDouble)), InternalError);
  EXPECT_THROW(sum_of_squares(at::zeros({4, 4}).t()), InternalError);
}

TEST(OrderedSum, AddsInOrder) {
  EXPECT_EQ(ordered_sum(std::array{9.0, 16.0}), 25.0);
  // In another order the small values would not be lost.
  EXPECT_EQ(ordered_sum(std::array{0x1p54, 1.0, 1.0}), 0x1p54);
  EXPECT_EQ(ordered_sum({}), 0.0);
}

TEST(ClipFactor, ShrinksOnlyNormsAboveLimit) {
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(100.0, 0.0), 1.0);
}

}  // namespace
}  // namespace strata
