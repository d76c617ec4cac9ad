// Compares fresh variances, factors and updates of one layer with loops in fp64.
#include "strata/optim/one_bit_lamb.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strata/device/thread_pool.h"
#include "strata/optim/master_weights.h"

namespace strata {
namespace {

const OptimizerOptions kOptions{.kind = OptimizerKind::kOneBitLamb,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-6,
                                .weight_decay = 0.1,
                                .coeff_beta = 0.8,
                                .freeze_step = 20};
constexpr double kRate = 0.02;

OneBitLambStep step_25(const OptimizerOptions& options) {
  return one_bit_lamb_step(options, 25, kRate,
                           one_bit_step(options, 25, kRate, /*gradient_factor=*/0.5,
                                        /*replicas=*/4));
}

const OneBitLambStep kStep = step_25(kOptions);

LayerLayout example_layout() {
  return make_layout({{.name = "first", .shape = {300, 100}, .decay = true},
                      {.name = "second", .shape = {500, 100}, .decay = true},
                      {.name = "bias", .shape = {2000}}},
                     {false, false, false});
}

const WeightBlocks kBlocks{example_layout()};
const std::vector<FrozenRatio> kFrozen{{0.3f, 1.5f}, {2.0f, 0.7f}};

at::Tensor waves(double frequency, double size) {
  return (at::arange(example_layout().trained_numel, at::kFloat) * frequency).sin() * size;
}

UpdateRange example_range() {
  const at::Tensor variances = waves(0.011, 1).square() * 1e-4;
  return {.weights = waves(0.7, 1),
          .gradients = waves(0.23, 1e-3),
          .slots = {waves(0.37, 1) * variances.sqrt(), variances, waves(0.19, 0.1),
                    at::zeros_like(variances), waves(0.013, 1).square() * 3e-5},
          .decay_numel = example_layout().decay_numel};
}

at::Tensor example_direction() { return waves(0.05, 1.5); }

double frozen_root(float variance) {
  return std::sqrt(variance) / std::sqrt(1 - std::pow(0.99, 20)) + 1e-6;
}

struct Refreshed {
  std::vector<double> fresh;
  double largest = 0;
};

Refreshed refreshed(const UpdateRange& range, const at::Tensor& direction, FlatRange elements) {
  const auto at = [](const at::Tensor& x, std::int64_t i) { return x.const_data_ptr<float>()[i]; };
  Refreshed result;
  for (std::int64_t i = elements.begin; i < elements.end; ++i) {
    const double root = frozen_root(at(range.slots[kVarianceSlot], i));
    const double g = (at(direction, i) * root - 0.9 * at(range.slots[kMomentumSlot], i)) / 0.1;
    const double fresh = 0.99 * at(range.slots[kFreshSlot], i) + 0.01 * g * g;
    result.fresh.push_back(fresh);
    result.largest =
        std::max(result.largest, root / (std::sqrt(fresh / (1 - std::pow(0.99, 25))) + 1e-6));
  }
  return result;
}

TEST(OneBitLamb, FreshVariancesAndFactorsFollowFormulas) {
  const UpdateRange range = example_range();
  const at::Tensor direction = example_direction(), momenta = range.slots[kMomentumSlot].clone();
  std::vector<Refreshed> expected;
  for (const auto& weight : kBlocks.weights())
    expected.push_back(refreshed(range, direction, weight.elements));
  const std::vector<double> largest = refresh_variances(kStep, kBlocks, range, 0, {}, direction);
  ASSERT_EQ(largest.size(), 2u);
  for (std::size_t w = 0; w < 2; ++w) {
    EXPECT_NEAR(largest[w], expected[w].largest, 1e-4 * expected[w].largest);
    const float* fresh =
        range.slots[kFreshSlot].const_data_ptr<float>() + kBlocks.weights()[w].elements.begin;
    for (std::size_t i = 0; i < expected[w].fresh.size(); ++i)
      ASSERT_NEAR(fresh[i], expected[w].fresh[i], 1e-5 * expected[w].fresh[i] + 1e-12) << i;
  }
  EXPECT_TRUE(at::equal(range.slots[kMomentumSlot], momenta));
}

TEST(OneBitLamb, FirstFreshVariancesAreTheFrozenOnes) {
  OptimizerOptions options = kOptions;
  options.freeze_step = 24;
  const UpdateRange range = example_range(), other = example_range();
  other.slots[kFreshSlot].copy_(other.slots[kVarianceSlot]);
  OneBitLambStep step = step_25(options);
  EXPECT_TRUE(step.first);
  EXPECT_FALSE(kStep.first);
  refresh_variances(step, kBlocks, range, 0, {}, example_direction());
  step.first = false;
  refresh_variances(step, kBlocks, other, 0, {}, example_direction());
  EXPECT_TRUE(at::equal(range.slots[kFreshSlot], other.slots[kFreshSlot]));
}

// Wherever it is, and whichever thread finds it.
TEST(OneBitLamb, LargestFactorIsNaNIfOneElementsIs) {
  for (const int threads : {1, 3})
    for (const std::int64_t at : {0, 29999, 30000, 61000, 79999}) {
      ThreadPool pool(threads);
      const ThreadPoolScope scope(pool);
      const at::Tensor direction = example_direction();
      direction[at].fill_(NAN);
      const std::vector<double> largest =
          refresh_variances(kStep, kBlocks, example_range(), 0, {}, direction);
      EXPECT_EQ(std::isnan(largest[0]), at < 30000) << at;
      EXPECT_EQ(std::isnan(largest[1]), at >= 30000) << at;
    }
}

// Padding has no momenta and no factor.
TEST(OneBitLamb, PaddingHasNoFactor) {
  const UpdateRange range = example_range();
  const at::Tensor direction = example_direction(), fresh = range.slots[kFreshSlot].clone();
  const std::vector<FlatRange> padding{{100, 200}, {29000, 31000}};
  const std::vector<double> largest =
      refresh_variances(kStep, kBlocks, range, 0, padding, direction);
  for (const FlatRange& gap : padding)
    EXPECT_TRUE(at::equal(range.slots[kFreshSlot].narrow(0, gap.begin, gap.size()),
                          fresh.narrow(0, gap.begin, gap.size())));
  UpdateRange again = example_range();
  const double before = refreshed(again, direction, {0, 100}).largest;
  const double between = refreshed(again, direction, {200, 29000}).largest;
  EXPECT_NEAR(largest[0], std::max(before, between), 1e-4 * largest[0]);
  EXPECT_NEAR(largest[1], refreshed(again, direction, {31000, 80000}).largest, 1e-4 * largest[1]);
}

TEST(OneBitLamb, WeightsMoveByFrozenRatioTimesFactor) {
  const UpdateRange range = example_range();
  const at::Tensor before = range.weights.clone(), direction = example_direction();
  move_weights(kStep, kBlocks, range, 0, kFrozen, direction);
  const double size = kRate / (1 - std::pow(0.9, 25));
  for (std::int64_t i = 0; i < range.weights.numel(); i += 7) {
    const bool first = i < 30000, decays = i < 80000;
    const double ratio = decays ? (first ? 0.3 * 1.5 : 2.0 * 0.7) : 1;
    const double kept = decays ? 1 - kRate * ratio * 0.1 : 1;
    const double u = direction[i].item<float>();
    ASSERT_NEAR(range.weights[i].item<float>(), before[i].item<float>() * kept - size * ratio * u,
                1e-6)
        << i;
    ASSERT_NEAR(range.slots[kMomentumSlot][i].item<float>(),
                u * frozen_root(range.slots[kVarianceSlot][i].item<float>()), 1e-8)
        << i;
  }
}

TEST(OneBitLamb, CutsAndThreadsChangeNoBit) {
  const UpdateRange whole = example_range();
  const at::Tensor direction = example_direction();
  const std::vector<double> largest = refresh_variances(kStep, kBlocks, whole, 0, {}, direction);
  move_weights(kStep, kBlocks, whole, 0, kFrozen, direction);
  for (const int parts : {2, 3, 5}) {
    ThreadPool pool(parts);
    const ThreadPoolScope scope(pool);
    const UpdateRange divided = example_range();
    std::vector<double> found(2);
    for (const FlatRange& part : cut({0, divided.weights.numel()}, parts)) {
      const UpdateRange own = narrowed(divided, part);
      const at::Tensor of_part = direction.narrow(0, part.begin, part.size());
      const std::vector<double> each =
          refresh_variances(kStep, kBlocks, own, part.begin, {}, of_part);
      for (std::size_t w = 0; w < 2; ++w) found[w] = std::max(found[w], each[w]);
      move_weights(kStep, kBlocks, own, part.begin, kFrozen, of_part);
    }
    EXPECT_EQ(found, largest);
    EXPECT_TRUE(at::equal(divided.weights, whole.weights));
    for (std::size_t slot = 0; slot < whole.slots.size(); ++slot)
      EXPECT_TRUE(at::equal(divided.slots[slot], whole.slots[slot])) << slot;
  }
}

TEST(OneBitLamb, MeanRatioIsThatOfCorrectedMeanFromZero) {
  FrozenRatio frozen;
  double mean = 0;
  for (int update = 1; update <= 20; ++update) {
    const double ratio = 0.5 + 0.1 * std::sin(update);
    frozen = with_ratio(kOptions, frozen, update, ratio);
    mean = 0.8 * mean + 0.2 * ratio;
    EXPECT_NEAR(frozen.mean, mean / (1 - std::pow(0.8, update)), 1e-6) << update;
  }
  EXPECT_EQ(frozen.factor, 1);
}

TEST(OneBitLamb, FactorIsLimitedInSizeAndChange) {
  OptimizerOptions options = kOptions;
  options.factor_min = 0.8;
  options.factor_max = 1.25;
  options.factor_threshold = 0.1;
  const auto next = [&](float last, double largest) {
    return with_factor(options, {.mean = 3, .factor = last}, largest);
  };
  EXPECT_FLOAT_EQ(next(1, 1.05).factor, 1.05f);
  EXPECT_FLOAT_EQ(next(1, 2).factor, 1.1f);
  EXPECT_FLOAT_EQ(next(1, 0.1).factor, 0.9f);
  EXPECT_FLOAT_EQ(next(1.2f, 2).factor, 1.25f);
  EXPECT_FLOAT_EQ(next(0.85f, 0.1).factor, 0.8f);
  EXPECT_EQ(next(1, 2).mean, 3);
}

TEST(OneBitLamb, KeepsFreshVariances) {
  const auto optimizer = make_optimizer(kOptions);
  EXPECT_FALSE(optimizer->sends_signs(20));
  EXPECT_TRUE(optimizer->sends_signs(21));
  EXPECT_EQ(optimizer->slot_names(),
            (std::vector<std::string>{"exp_avg", "exp_avg_sq", "worker_error", "server_error",
                                      "exp_avg_sq_fresh"}));
}

}  // namespace
}  // namespace strata
