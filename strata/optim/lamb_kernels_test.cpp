// Compares the kernels with loops over elements (rounded_floats_test.h), and whole ranges with
// halves.
#include "strata/optim/lamb_kernels.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "strata/base/every_target_test.h"
#include "strata/optim/rounded_floats_test.h"

namespace strata::kernels {
namespace {

using Floats = std::vector<float>;

const UpdateStep kDirection{.gradient_factor = 0.3f,
                            .size = 1.7f,
                            .penalty = 0.1f,
                            .mean_kept = 0.9f,
                            .mean_share = 0.1f,
                            .square_kept = 0.99f,
                            .square_share = 0.01f,
                            .root_scale = 1.3f,
                            .epsilon = 1e-6f};
const OneBitStep kFrozen{.momentum_kept = 0.9f, .root_scale = 1.1f, .epsilon = 1e-6f};
const FreshStep kFresh{
    .square_kept = 0.99f, .square_share = 0.01f, .gradient_scale = 10, .root_scale = 1.2f};

// Arrays of any of the kernels.
struct LambArrays {
  Floats weights, gradients, means, squares, fresh;

  std::int64_t numel() const { return std::ssize(weights); }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (const Floats* values : {&weights, &gradients, &means, &squares, &fresh})
      for (const float value : *values) all.push_back(std::bit_cast<std::uint32_t>(value));
    return all;
  }
  // Those that a kernel has not written, too.
  void unify_nans() {
    for (Floats* values : {&weights, &gradients, &means, &squares, &fresh})
      for (float& value : *values) value = std::bit_cast<float>(bits_of(value));
  }
};

LambArrays random_arrays(std::int64_t n, bool wild) {
  LambArrays arrays{.weights = random_floats(n, 0.02f, wild, 1),
                    .gradients = random_floats(n, 1e-3f, wild, 2),
                    .means = random_floats(n, 1e-3f, wild, 3),
                    .squares = random_squares(n, 1e-6f, wild, 4),
                    .fresh = random_squares(n, 1e-6f, wild, 5)};
  arrays.unify_nans();
  return arrays;
}

void direct(const UpdateStep& step, LambArrays& x, std::int64_t from, std::int64_t to) {
  find_directions(step, x.weights.data() + from, x.gradients.data() + from, x.means.data() + from,
                  x.squares.data() + from, to - from);
}

LambArrays directed(const UpdateStep& s, LambArrays x) {
  for (std::size_t i = 0; i < x.weights.size(); ++i) {
    float &g = x.gradients[i], &m = x.means[i], &v = x.squares[i];
    g = times(g, s.gradient_factor);
    m = plus(times(s.mean_kept, m), times(s.mean_share, g));
    v = plus(times(s.square_kept, v), times(times(s.square_share, g), g));
    g = over(times(s.size, m), plus(times(root(v), s.root_scale), s.epsilon));
    if (s.penalty != 0) g = plus(g, times(s.penalty, x.weights[i]));
  }
  x.unify_nans();
  return x;
}

TEST(LambKernels, DirectionsHaveBitsOfElements) {
  for (const bool wild : {false, true})
    for (const float penalty : {0.1f, 0.0f})
      for (const std::int64_t n : kTestedLengths) {
        UpdateStep step = kDirection;
        step.penalty = penalty;
        const LambArrays before = random_arrays(n, wild), expected = directed(step, before);
        expect_bits_of_elements(
            before, expected, n,
            [&](LambArrays& x, std::int64_t from, std::int64_t to) { direct(step, x, from, to); });
      }
}

TEST(LambKernels, InfiniteWeightsWithoutDecayHaveAdamsDirection) {
  constexpr std::int64_t kNumel = 17;
  UpdateStep step = kDirection;
  step.penalty = 0;
  LambArrays infinite = random_arrays(kNumel, false), finite = infinite;
  infinite.weights.assign(kNumel, std::numeric_limits<float>::infinity());
  direct(step, infinite, 0, kNumel);
  direct(step, finite, 0, kNumel);
  EXPECT_EQ(infinite.gradients, finite.gradients);
}

TEST(LambKernels, MovesHaveBitsOfElements) {
  constexpr float kRate = 0.03f;
  const auto move = [](LambArrays& x, std::int64_t from, std::int64_t to) {
    move_by_directions(kRate, x.gradients.data() + from, x.weights.data() + from, to - from);
  };
  for (const bool wild : {false, true})
    for (const std::int64_t n : kTestedLengths) {
      const LambArrays before = random_arrays(n, wild);
      LambArrays expected = before;
      for (std::size_t i = 0; i < expected.weights.size(); ++i)
        expected.weights[i] = minus(expected.weights[i], times(kRate, expected.gradients[i]));
      expected.unify_nans();
      expect_bits_of_elements(before, expected, n, move);
    }
}

float refresh(LambArrays& x, std::int64_t from, std::int64_t to) {
  return refresh_variances(kFrozen, kFresh, x.gradients.data() + from, x.means.data() + from,
                           x.squares.data() + from, x.fresh.data() + from, to - from);
}

// A NaN is larger than any number.
float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }

float refreshed_by_elements(LambArrays& x) {
  float largest = 0;
  for (std::size_t i = 0; i < x.weights.size(); ++i) {
    const float by = plus(times(root(x.squares[i]), kFrozen.root_scale), kFrozen.epsilon);
    const float moved = minus(times(x.gradients[i], by), times(kFrozen.momentum_kept, x.means[i]));
    const float g = times(kFresh.gradient_scale, moved);
    x.fresh[i] =
        plus(times(kFresh.square_kept, x.fresh[i]), times(times(kFresh.square_share, g), g));
    const float now = plus(times(root(x.fresh[i]), kFresh.root_scale), kFrozen.epsilon);
    largest = larger(largest, over(by, now));
  }
  x.unify_nans();
  return largest;
}

TEST(LambKernels, FreshVariancesAndLargestFactorHaveBitsOfElements) {
  for (const bool wild : {false, true})
    for (const std::int64_t n : kTestedLengths) {
      const LambArrays before = random_arrays(n, wild);
      LambArrays expected = before;
      const float largest = refreshed_by_elements(expected);
      on_every_target([&] {
        LambArrays whole = before, halves = before;
        EXPECT_EQ(bits_of(refresh(whole, 0, n)), bits_of(largest)) << n;
        const float first = refresh(halves, 0, n / 2), second = refresh(halves, n / 2, n);
        EXPECT_EQ(bits_of(larger(first, second)), bits_of(largest)) << n;
        EXPECT_EQ(whole.bits(), expected.bits()) << n;
        EXPECT_EQ(halves.bits(), expected.bits()) << n;
      });
    }
}

TEST(LambKernels, LargestFactorIsNaNWhereverOneIs) {
  constexpr std::int64_t kNumel = 37;  // whole vectors and a rest on every instruction set
  on_every_target([&] {
    for (std::int64_t at = 0; at < kNumel; ++at)
      for (const std::uint32_t nan : {0x7F800001u, 0x7FFFFFFFu, 0xFFC00000u}) {
        LambArrays arrays = random_arrays(kNumel, false);
        arrays.gradients[static_cast<std::size_t>(at)] = std::bit_cast<float>(nan);
        EXPECT_EQ(std::bit_cast<std::uint32_t>(refresh(arrays, 0, kNumel)), 0x7FC00000u) << at;
      }
  });
}

TEST(LambKernels, LargestFactorIsFoundWhereverItIs) {
  constexpr std::int64_t kNumel = 37;
  on_every_target([&] {
    for (std::size_t at = 0; at < kNumel; ++at) {
      LambArrays arrays = random_arrays(kNumel, false), alone = arrays;
      arrays.squares[at] = 1e-2f;
      const float largest = refresh(arrays, 0, kNumel);
      alone.squares[at] = 1e-2f;
      const auto i = static_cast<std::int64_t>(at);
      EXPECT_EQ(largest, refresh(alone, i, i + 1)) << at;
      EXPECT_GT(largest, 1) << at;
    }
  });
}

}  // namespace
}  // namespace strata::kernels
