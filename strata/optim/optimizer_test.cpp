#include "strata/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strata/base/errors.h"
#include "strata/device/thread_pool.h"

namespace strata {
namespace {

constexpr std::int64_t kNumel = 3 * 1024 + 16;

class OptimizerTest : public ::testing::TestWithParam<OptimizerKind> {
 protected:
  OptimizerOptions options() const {
    return {.kind = GetParam(), .learning_rate = 0.01, .weight_decay = 0.1};
  }
};

UpdateRange random_range(std::int64_t numel, std::int64_t decay_numel, std::size_t num_slots) {
  at::manual_seed(7);
  UpdateRange range{
      .weights = at::randn({numel}), .gradients = at::randn({numel}), .decay_numel = decay_numel};
  for (std::size_t i = 0; i < num_slots; ++i) range.slots.push_back(at::zeros({numel}));
  return range;
}

UpdateRange piece(const UpdateRange& range, std::int64_t begin, std::int64_t end) {
  UpdateRange part{
      .weights = range.weights.slice(0, begin, end),
      .gradients = range.gradients.slice(0, begin, end),
      .decay_numel = std::clamp<std::int64_t>(range.decay_numel - begin, 0, end - begin)};
  for (const at::Tensor& slot : range.slots) part.slots.push_back(slot.slice(0, begin, end));
  return part;
}

// Three steps over the range, cut at the given elements.
UpdateRange trained(const Optimizer& optimizer, const std::vector<std::int64_t>& cuts) {
  const UpdateRange range = random_range(kNumel, 1024 + 32, optimizer.slot_names().size());
  for (std::int64_t step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      optimizer.update(piece(range, cuts[i], cuts[i + 1]), step, 0.01);
    }
  }
  return range;
}

void expect_same_bits(const UpdateRange& a, const UpdateRange& b) {
  EXPECT_TRUE(at::equal(a.weights, b.weights));
  for (std::size_t i = 0; i < a.slots.size(); ++i) EXPECT_TRUE(at::equal(a.slots[i], b.slots[i]));
}

TEST_P(OptimizerTest, GivesTheSameBitsForPiecesCutAtMultiplesOf16) {
  const auto optimizer = make_optimizer(options());
  const UpdateRange whole = trained(*optimizer, {0, kNumel});
  expect_same_bits(whole, trained(*optimizer, {0, 1024, 2048, kNumel}));
  expect_same_bits(whole, trained(*optimizer, {0, 16, 48, 1040, 1056, 3024, kNumel}));
}

TEST_P(OptimizerTest, GivesTheSameBitsWithOneAndTwoThreads) {
  const auto optimizer = make_optimizer(options());
  const int threads = at::get_num_threads();
  // Large enough that ATen shares the work.
  const auto run = [&](int num_threads) {
    at::set_num_threads(num_threads);
    const UpdateRange range = random_range(1 << 18, 1 << 16, optimizer->slot_names().size());
    for (std::int64_t step = 1; step <= 2; ++step) optimizer->update(range, step, 0.01);
    return range;
  };
  const UpdateRange one = run(1), two = run(2);
  at::set_num_threads(threads);
  expect_same_bits(one, two);
}

TEST_P(OptimizerTest, DecaysTheFrontOfTheBufferOnly) {
  const auto optimizer = make_optimizer(options());
  const UpdateRange range = random_range(64, 32, optimizer->slot_names().size());
  range.weights.fill_(1);
  range.gradients.zero_();
  optimizer->update(range, 1, 0.01);
  EXPECT_TRUE(at::all(range.weights.slice(0, 0, 32) < 1).item<bool>());
  EXPECT_TRUE(at::equal(range.weights.slice(0, 32), at::ones({32})));
}

TEST_P(OptimizerTest, LeavesZeroPaddingAtZero) {
  const auto optimizer = make_optimizer(options());
  const UpdateRange range = random_range(64, 32, optimizer->slot_names().size());
  range.weights.slice(0, 20, 40).zero_();
  range.gradients.slice(0, 20, 40).zero_();
  optimizer->update(range, 1, 0.01);
  EXPECT_TRUE(at::equal(range.weights.slice(0, 20, 40), at::zeros({20})));
}

TEST_P(OptimizerTest, RefusesBuffersThatDoNotBelongTogether) {
  const auto optimizer = make_optimizer(options());
  UpdateRange range = random_range(64, 24, optimizer->slot_names().size());
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);  // cut within a vector
  range.decay_numel = 32;
  range.slots.push_back(at::zeros({64}));
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);  // one slot too many
  range.slots.pop_back();
  range.gradients = at::zeros({48});
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);  // a shorter gradient
}

// Longer than what is updated at a time.
TEST_P(OptimizerTest, ScalesAndRoundsInTheBitsOfSeparatePasses) {
  constexpr std::int64_t kLong = 3 * (1 << 16) + 48, kDecayed = (1 << 16) + 32;
  const auto optimizer = make_optimizer(options());
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool);
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      UpdateRange apart = random_range(kLong, kDecayed, optimizer->slot_names().size());
      UpdateRange together = random_range(kLong, kDecayed, optimizer->slot_names().size());
      apart.gradients.mul_(0.3);
      together.gradient_factor = 0.3;
      together.rounded = at::full({kLong}, -1, dtype);
      optimizer->update(apart, 2, 0.01);
      optimizer->update(together, 2, 0.01);
      EXPECT_TRUE(at::equal(apart.weights, together.weights));
      EXPECT_TRUE(at::equal(apart.gradients, together.gradients));
      for (std::size_t i = 0; i < apart.slots.size(); ++i)
        EXPECT_TRUE(at::equal(apart.slots[i], together.slots[i]));
      EXPECT_TRUE(at::equal(apart.weights.to(dtype), together.rounded));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerTest,
                         ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kSgd),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Algorithm 2 of Loshchilov & Hutter (2019) in double precision.
TEST(AdamW, FollowsThePaper) {
  const OptimizerOptions options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  const auto optimizer = make_optimizer(options);
  const std::int64_t numel = 96, decay_numel = 64;
  const UpdateRange range = random_range(numel, decay_numel, 2);
  const at::Tensor weights = range.weights.to(at::kDouble);
  std::vector<double> m(numel), v(numel),
      w(weights.data_ptr<double>(), weights.data_ptr<double>() + numel);
  for (int step = 1; step <= 20; ++step) {
    const double rate = 0.01 / step;
    range.gradients.copy_(at::randn({numel}));
    optimizer->update(range, step, rate);
    for (std::int64_t i = 0; i < numel; ++i) {
      const double g = range.gradients[i].item<float>();
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(options.beta1, step));
      const double v_hat = v[i] / (1 - std::pow(options.beta2, step));
      const double decay = i < decay_numel ? options.weight_decay : 0;
      w[i] -= rate * (m_hat / (std::sqrt(v_hat) + options.epsilon) + decay * w[i]);
    }
  }
  for (std::int64_t i = 0; i < numel; ++i) {
    EXPECT_NEAR(range.weights[i].item<float>(), w[i], 2e-6);
    EXPECT_NEAR(range.slots[0][i].item<float>(), m[i], 1e-6);
    EXPECT_NEAR(range.slots[1][i].item<float>(), v[i], 1e-6);
  }
}

TEST(Sgd, KeepsAVelocity) {
  const auto optimizer =
      make_optimizer({.kind = OptimizerKind::kSgd, .weight_decay = 0.5, .momentum = 0.9});
  const UpdateRange range = random_range(32, 16, 1);
  range.weights.fill_(1);
  range.gradients.fill_(0.25);
  optimizer->update(range, 1, 0.1);  // velocity 0.25 + 0.5 * 1 = 0.75 and 0.25
  EXPECT_FLOAT_EQ(range.weights[0].item<float>(), 1 - 0.1f * 0.75f);
  EXPECT_FLOAT_EQ(range.weights[16].item<float>(), 1 - 0.1f * 0.25f);
  optimizer->update(range, 2, 0.1);  // 0.9 * 0.25 + 0.25 = 0.475
  EXPECT_FLOAT_EQ(range.slots[0][16].item<float>(), 0.475f);
  EXPECT_FLOAT_EQ(range.weights[16].item<float>(), 1 - 0.025f - 0.0475f);
}

TEST(Sgd, HasNoSlotWithoutMomentum) {
  const auto optimizer =
      make_optimizer({.kind = OptimizerKind::kSgd, .weight_decay = 0, .momentum = 0});
  EXPECT_TRUE(optimizer->slot_names().empty());
  const UpdateRange range = random_range(32, 16, 0);
  range.weights.fill_(1);
  range.gradients.fill_(2);
  optimizer->update(range, 1, 0.125);
  EXPECT_TRUE(at::equal(range.weights, at::full({32}, 0.75f)));
}

TEST(OptimizerOptions, AreReadFromARecipe) {
  OptimizerOptions options;
  OptionSet set;
  describe(set, "train.optimizer", options);
  set.set("train.optimizer.kind=sgd");
  set.set("train.optimizer.momentum=0.5");
  EXPECT_EQ(options.kind, OptimizerKind::kSgd);
  EXPECT_EQ(options.momentum, 0.5);
  EXPECT_THROW(set.set("train.optimizer.kind=lion"), UserError);
  EXPECT_THROW(set.set("train.optimizer.beta2=1"), UserError);
}

}  // namespace
}  // namespace strata
