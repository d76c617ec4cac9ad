// Compares updates by averaged momenta with loops in fp64.
#include "strata/optim/one_bit_adam.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strata/device/thread_pool.h"
#include "strata/optim/master_weights.h"

namespace strata {
namespace {

constexpr std::int64_t kNumel = 100000;
constexpr std::int64_t kDecayed = 60000;
const OptimizerOptions kOptions{.kind = OptimizerKind::kOneBitAdam,
                                .learning_rate = 0.01,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-8,
                                .weight_decay = 0.1,
                                .freeze_step = 20};

at::Tensor waves(double frequency, double size) {
  return (at::arange(kNumel, at::kFloat) * frequency).sin() * size;
}

UpdateRange example_range() {
  // Every hundredth weight never had a gradient.
  at::Tensor variances = waves(0.011, 1).square() * 1e-6;
  variances.view({-1, 100}).select(1, 0).zero_();
  at::Tensor momenta = waves(0.37, 1e-4) * variances.sqrt() * 1e3;
  return {.weights = waves(0.7, 1),
          .gradients = waves(0.23, 1e-3),
          .slots = {momenta, variances, waves(0.19, 0.1), at::zeros({kNumel})},
          .decay_numel = kDecayed};
}

const OneBitStep kStep = one_bit_step(kOptions, 25, 0.01, 0.5, 4);

double divisor(double variance) {
  return std::sqrt(variance) / std::sqrt(1 - std::pow(0.99, 20)) + 1e-8;
}

TEST(OneBitAdam, SendsMomentaInUnitsOfUpdate) {
  const UpdateRange range = example_range();
  const at::Tensor before = range.slots[kWorkerErrorSlot].clone();
  const at::Tensor momenta = range.slots[kMomentumSlot].clone();
  add_momenta(kStep, range);
  int at_most = 0;
  for (std::int64_t i = 0; i < kNumel; i += 7) {
    const double by = divisor(range.slots[kVarianceSlot][i].item<float>());
    const double most = 0.1 / std::sqrt(0.01);
    const double whole = 0.1 * 4 * 0.5 * range.gradients[i].item<float>() / by;
    const double added = std::clamp(whole, -most, most);
    at_most += std::fabs(whole) > most ? 1 : 0;
    const double expected = before[i].item<float>() + 0.9 * momenta[i].item<float>() / by + added;
    ASSERT_NEAR(range.slots[kWorkerErrorSlot][i].item<float>(), expected,
                1e-4 * (1 + std::fabs(expected)))
        << i;
  }
  EXPECT_GT(at_most, 0);
  EXPECT_TRUE(at::equal(range.slots[kMomentumSlot], momenta));
}

TEST(OneBitAdam, MovesWeightsByMean) {
  const UpdateRange range = example_range();
  const at::Tensor before = range.weights.clone(), mean = waves(0.05, 0.3);
  const at::Tensor variances = range.slots[kVarianceSlot].clone();
  move_weights(kStep, range, mean);
  const double size = 0.01 / (1 - std::pow(0.9, 25));
  for (std::int64_t i = 0; i < kNumel; i += 7) {
    const double kept = i < kDecayed ? 1 - 0.01 * 0.1 : 1;
    const double by = divisor(variances[i].item<float>());
    ASSERT_NEAR(range.weights[i].item<float>(),
                before[i].item<float>() * kept - size * mean[i].item<float>(), 1e-6)
        << i;
    ASSERT_NEAR(range.slots[kMomentumSlot][i].item<float>(), mean[i].item<float>() * by, 1e-9) << i;
  }
  EXPECT_TRUE(at::equal(range.slots[kVarianceSlot], variances));
}

// With one replica and exact means, it is AdamW whose variances stay.
TEST(OneBitAdam, IsAdamWWithThoseVariances) {
  const UpdateRange range = example_range(), adam = example_range();
  range.slots[kWorkerErrorSlot].zero_();
  range.gradients.mul_(1e-3);  // below the most that a gradient adds
  adam.gradients.mul_(1e-3);
  const OneBitStep step = one_bit_step(kOptions, 25, 0.01, 1, 1);
  range.slots[kVarianceSlot].add_(1e-7);
  const at::Tensor root =
      range.slots[kVarianceSlot].sqrt() / std::sqrt(1 - std::pow(0.99, 20)) + 1e-8;
  const at::Tensor momenta = adam.slots[kMomentumSlot] * 0.9 + adam.gradients * 0.1;
  const double size = 0.01 / (1 - std::pow(0.9, 25));
  at::Tensor expected = adam.weights.clone();
  expected.narrow(0, 0, kDecayed).mul_(1 - 0.001);
  expected.sub_(momenta / root * size);
  add_momenta(step, range);
  move_weights(step, range, range.slots[kWorkerErrorSlot]);
  EXPECT_LE((range.weights - expected).abs().max().item<float>(), 1e-5f);
  EXPECT_LE((range.slots[kMomentumSlot] - momenta).abs().max().item<float>(), 1e-9f);
}

TEST(OneBitAdam, DependsOnNoThreads) {
  const auto run = [](int threads) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool);
    UpdateRange range = example_range();
    add_momenta(kStep, range);
    move_weights(kStep, range, range.slots[kWorkerErrorSlot]);
    return range;
  };
  const UpdateRange one = run(1), four = run(4);
  EXPECT_TRUE(at::equal(one.weights, four.weights));
  for (int slot = 0; slot < 4; ++slot) EXPECT_TRUE(at::equal(one.slots[slot], four.slots[slot]));
}

TEST(OneBitAdam, WritesSixteenBitWeights) {
  UpdateRange fp32 = example_range(), rounded = example_range(), split = example_range();
  rounded.rounded = at::zeros({kNumel}, at::kHalf);
  const at::Tensor whole = split.weights.clone();
  split.weights = at::zeros({kNumel}, at::kBFloat16);
  split.remainder = at::zeros({kNumel}, at::kShort);
  MasterWeights{split.weights, split.remainder}.assign(whole);
  const at::Tensor mean = waves(0.05, 0.3);
  for (const UpdateRange* range : {&fp32, &rounded, &split}) move_weights(kStep, *range, mean);
  EXPECT_TRUE(at::equal(rounded.rounded, fp32.weights.to(at::kHalf)));
  EXPECT_TRUE(at::equal(MasterWeights{split.weights, split.remainder}.whole(), fp32.weights));
}

TEST(OneBitAdam, BeginsAfterFreezeStep) {
  const auto optimizer = make_optimizer(kOptions);
  EXPECT_FALSE(optimizer->sends_signs(20));
  EXPECT_TRUE(optimizer->sends_signs(21));
  EXPECT_FALSE(make_optimizer({})->sends_signs(1000));
  EXPECT_EQ(optimizer->slot_names(),
            (std::vector<std::string>{"exp_avg", "exp_avg_sq", "worker_error", "server_error"}));
}

}  // namespace
}  // namespace strata
