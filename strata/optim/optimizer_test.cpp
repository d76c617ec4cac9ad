#include "strata/optim/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

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

// Makes three steps over the range, cut at these elements.
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

TEST_P(OptimizerTest, HasSameBitsForAnyCut) {
  const auto optimizer = make_optimizer(options());
  const UpdateRange whole = trained(*optimizer, {0, kNumel});
  expect_same_bits(whole, trained(*optimizer, {0, 1024, 2048, kNumel}));
  expect_same_bits(whole, trained(*optimizer, {0, 1, 4, 50, 51, 1063, 1064, 3001, kNumel}));
}

TEST_P(OptimizerTest, HasSameBitsForAnyThreads) {
  const auto optimizer = make_optimizer(options());
  const auto run = [&](int threads) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool);
    // Large enough for several threads; the range and its decayed part end within a vector.
    const UpdateRange range = random_range((1 << 18) + 5, 70001, optimizer->slot_names().size());
    for (std::int64_t step = 1; step <= 2; ++step) optimizer->update(range, step, 0.01);
    return range;
  };
  const UpdateRange one = run(1);
  expect_same_bits(one, run(2));
  expect_same_bits(one, run(5));
}

TEST_P(OptimizerTest, DecaysOnlyFrontOfBuffer) {
  const auto optimizer = make_optimizer(options());
  const UpdateRange range = random_range(64, 27, optimizer->slot_names().size());
  range.weights.fill_(1);
  range.gradients.zero_();
  optimizer->update(range, 1, 0.01);
  EXPECT_TRUE(at::all(range.weights.slice(0, 0, 27) < 1).item<bool>());
  EXPECT_TRUE(at::equal(range.weights.slice(0, 27), at::ones({37})));
}

TEST_P(OptimizerTest, Reads16BitGradients) {
  const auto optimizer = make_optimizer(options());
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    UpdateRange narrow = random_range(1003, 500, optimizer->slot_names().size());
    UpdateRange wide = random_range(1003, 500, optimizer->slot_names().size());
    narrow.gradients = narrow.gradients.to(dtype);
    wide.gradients = narrow.gradients.to(at::kFloat);
    optimizer->update(narrow, 1, 0.01);
    optimizer->update(wide, 1, 0.01);
    expect_same_bits(narrow, wide);
  }
}

TEST_P(OptimizerTest, LeavesZeroPaddingAtZero) {
  const auto optimizer = make_optimizer(options());
  const UpdateRange range = random_range(64, 32, optimizer->slot_names().size());
  range.weights.slice(0, 20, 40).zero_();
  range.gradients.slice(0, 20, 40).zero_();
  optimizer->update(range, 1, 0.01);
  EXPECT_TRUE(at::equal(range.weights.slice(0, 20, 40), at::zeros({20})));
}

TEST_P(OptimizerTest, RejectsBuffersThatDoNotMatch) {
  const auto optimizer = make_optimizer(options());
  UpdateRange range = random_range(64, 65, optimizer->slot_names().size());
  // decays more elements than there are
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);
  range.decay_numel = 32;
  range.slots.push_back(at::zeros({64}));
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);  // one slot too many
  range.slots.pop_back();
  range.gradients = at::zeros({48});
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);  // a shorter gradient
  range.gradients = at::zeros({128}).slice(0, 0, 128, 2);
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);  // not contiguous
  range.gradients = at::zeros({64}, at::kDouble);
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);
  range.gradients = at::zeros({64});
  range.rounded = at::zeros({64});
  // `rounded` has the dtype of the weights
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);
  range.rounded = at::Tensor();
  range.weights = range.weights.to(at::kBFloat16);
  EXPECT_THROW(optimizer->update(range, 1, 0.01), InternalError);
}

TEST_P(OptimizerTest, HasBitsOfSeparateScalingAndRounding) {
  constexpr std::int64_t kLong = 3 * (1 << 16) + 45, kDecayed = (1 << 16) + 31;
  const auto optimizer = make_optimizer(options());
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool);
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      UpdateRange apart = random_range(kLong, kDecayed, optimizer->slot_names().size());
      UpdateRange together = random_range(kLong, kDecayed, optimizer->slot_names().size());
      apart.gradients.mul_(0.3);
      const at::Tensor given = together.gradients.clone();
      together.rounded = at::full({kLong}, -1, dtype);
      optimizer->update(apart, 2, 0.01);
      optimizer->update(together, 2, 0.01, /*gradient_factor=*/0.3);
      EXPECT_TRUE(at::equal(apart.weights, together.weights));
      EXPECT_TRUE(at::equal(given, together.gradients));  // gradients are read only
      for (std::size_t i = 0; i < apart.slots.size(); ++i)
        EXPECT_TRUE(at::equal(apart.slots[i], together.slots[i]));
      EXPECT_TRUE(at::equal(apart.weights.to(dtype), together.rounded));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerTest,
                         ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kSgd,
                                           OptimizerKind::kAdagrad),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Distances in units of the last place of `size`: 99 % at most 2, none above 4 (an update much
// larger than its weight, and the square of a sum, keep the errors of several operations).
void expect_close(const at::Tensor& a, const at::Tensor& b, const at::Tensor& size) {
  const at::Tensor unit = at::pow(2.0, at::floor(at::log2(size)) - 23);
  const at::Tensor ulps = (a.to(at::kDouble) - b.to(at::kDouble)).abs() / unit;
  EXPECT_LE(ulps.max().item<double>(), 4);
  EXPECT_LE((ulps > 2).sum().item<double>(), 1e-2 * static_cast<double>(ulps.numel()));
}

// The sizes of a step's terms, which may cancel: for the weights, then for the slots.
std::vector<at::Tensor> sizes_of_terms(const OptimizerOptions& o, const UpdateRange& range,
                                       std::int64_t step, double rate) {
  const auto size = [](const at::Tensor& x) { return x.to(at::kDouble).abs(); };
  const at::Tensor w = size(range.weights), g = size(range.gradients);
  if (o.kind == OptimizerKind::kAdamW) {
    const at::Tensor m = o.beta1 * size(range.slots[0]) + (1 - o.beta1) * g;
    const at::Tensor v = o.beta2 * size(range.slots[1]) + (1 - o.beta2) * g * g;
    const double n = static_cast<double>(step);
    const at::Tensor root = at::sqrt(v / (1 - std::pow(o.beta2, n))) + o.epsilon;
    return {w + rate / (1 - std::pow(o.beta1, n)) * m / root, m, v};
  }
  const at::Tensor penalised = g + o.weight_decay * w;
  if (o.kind == OptimizerKind::kSgd) {
    const at::Tensor velocity = o.momentum * size(range.slots[0]) + penalised;
    return {w + rate * velocity, velocity};
  }
  const at::Tensor sum = size(range.slots[0]) + penalised * penalised;
  return {w + rate * penalised / at::sqrt(sum), sum};
}

void update_by_torch(const OptimizerOptions& options, const UpdateRange& range, std::int64_t step,
                     double rate) {
  const at::Tensor count = at::full({}, static_cast<double>(step), at::kFloat);
  const auto& [w, g, slots] = std::tie(range.weights, range.gradients, range.slots);
  if (options.kind == OptimizerKind::kAdamW) {
    at::_fused_adamw_({w}, {g}, {slots[0]}, {slots[1]}, {}, {count}, rate, options.beta1,
                      options.beta2, options.weight_decay, options.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  } else if (options.kind == OptimizerKind::kSgd) {
    at::_fused_sgd_({w}, {g}, slots, options.weight_decay, options.momentum, rate,
                    /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false);
  } else {
    at::_fused_adagrad_({w}, {g}, {slots[0]}, {count}, rate, /*lr_decay=*/0.0, options.weight_decay,
                        options.epsilon, /*maximize=*/false);
  }
}

// PyTorch fuses multiplications and additions, takes the mean as g + beta1 (m - g), and divides by
// the root of the bias correction.
TEST_P(OptimizerTest, IsWithinUnitsOfLastPlaceOfPyTorch) {
  constexpr std::int64_t kMany = 1 << 16;
  OptimizerOptions options = this->options();
  const auto optimizer = make_optimizer(options);
  UpdateRange ours = random_range(kMany, kMany, optimizer->slot_names().size());
  UpdateRange theirs = ours;
  for (std::int64_t step = 1; step <= 30; ++step) {
    SCOPED_TRACE(step);
    ours.gradients = at::randn({kMany}).mul_(at::exp(at::randn({kMany})));
    theirs.gradients = ours.gradients;
    theirs.weights = ours.weights.clone();
    for (std::size_t i = 0; i < ours.slots.size(); ++i) theirs.slots[i] = ours.slots[i].clone();
    const std::vector<at::Tensor> sizes = sizes_of_terms(options, theirs, step, 0.01);
    optimizer->update(ours, step, 0.01);
    update_by_torch(options, theirs, step, 0.01);
    expect_close(ours.weights, theirs.weights, sizes[0]);
    for (std::size_t i = 0; i < ours.slots.size(); ++i)
      expect_close(ours.slots[i], theirs.slots[i], sizes[i + 1]);
  }
}

// Algorithm 2 of Loshchilov & Hutter (2019) in double precision.
TEST(AdamW, EqualsPaper) {
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

// Duchi et al. 2011, the diagonal form, in double precision.
TEST(Adagrad, DividesByRootOfSumOfSquares) {
  const auto optimizer =
      make_optimizer({.kind = OptimizerKind::kAdagrad, .epsilon = 1e-3, .weight_decay = 0.5});
  EXPECT_EQ(optimizer->slot_names(), std::vector<std::string>{"sum"});
  const UpdateRange range = random_range(37, 20, 1);
  std::vector<double> sum(37), w(37);
  for (std::int64_t i = 0; i < 37; ++i) w[i] = range.weights[i].item<float>();
  for (int step = 1; step <= 20; ++step) {
    range.gradients.copy_(at::randn({37}));
    optimizer->update(range, step, 0.1 / step);
    for (std::int64_t i = 0; i < 37; ++i) {
      const double g = range.gradients[i].item<float>() + (i < 20 ? 0.5 * w[i] : 0);
      sum[i] += g * g;
      w[i] -= 0.1 / step * g / (std::sqrt(sum[i]) + 1e-3);
    }
  }
  for (std::int64_t i = 0; i < 37; ++i) {
    EXPECT_NEAR(range.weights[i].item<float>(), w[i], 2e-6);
    EXPECT_NEAR(range.slots[0][i].item<float>(), sum[i], 1e-5);
  }
}

TEST(Sgd, KeepsVelocity) {
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

TEST(OptimizerOptions, AreReadFromRecipe) {
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
