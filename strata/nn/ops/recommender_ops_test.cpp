// Compares the operators of recommenders with ATen's: values, gradients, and running statistics.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strata/base/errors.h"
#include "strata/base/every_target_test.h"
#include "strata/base/ignored_target.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/graph/moments.h"
#include "strata/nn/ops/batch_norm.h"
#include "strata/nn/ops/interaction.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/logistic_loss.h"

namespace strata {
namespace {

at::Tensor weight(const at::Tensor& values) {
  at::Tensor leaf = values.clone().requires_grad_(true);
  leaf.mutable_grad() = at::zeros_like(values);
  return leaf;
}

at::Tensor input(const at::Tensor& values) { return values.clone().requires_grad_(true); }

void expect_close(const at::Tensor& ours, const at::Tensor& theirs, double tolerance) {
  ASSERT_TRUE(ours.defined() && theirs.defined());
  ASSERT_EQ(ours.sizes(), theirs.sizes());
  const double scale = std::max(1.0, theirs.abs().max().item<double>());
  EXPECT_LE((ours - theirs).abs().max().item<double>() / scale, tolerance);
}

TEST(Relu, EqualsAtenAndKeepsIncomingGradient) {
  at::manual_seed(1);
  const at::Tensor values = at::randn({7, 37});
  const at::Tensor ours = input(values), theirs = input(values), dy = at::randn({7, 37});
  const at::Tensor before = dy.clone(), y = activate(Activation::kRelu, ours);
  const at::Tensor expected = at::relu(theirs);
  EXPECT_TRUE(at::equal(y, expected));
  y.backward(dy);
  expected.backward(dy);
  EXPECT_TRUE(at::equal(ours.grad(), theirs.grad()));
  EXPECT_TRUE(at::equal(dy, before));
}

TEST(Relu, PropagatesNaN) {
  const at::Tensor x = at::full({3}, std::nan(""));
  EXPECT_TRUE(activate(Activation::kRelu, x).isnan().all().item<bool>());
}

TEST(Linear, SkipsUnneededInputGradient) {
  const at::Tensor x = at::ones({3, 4}), w = weight(at::ones({2, 4})), b = weight(at::zeros({2}));
  linear(x, w, b).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(at::equal(w.grad(), at::full({2, 4}, 3.0)));
}

struct Norms {
  at::Tensor gain, bias, mean, variance;
  explicit Norms(std::int64_t width)
      : gain(weight(at::randn({width}))),
        bias(weight(at::randn({width}))),
        mean(weight(at::randn({width}))),
        variance(weight(at::rand({width}) + 0.5)) {
    mean.mutable_grad() = no_moments(width, at::kFloat);
    variance.mutable_grad().reset();
  }
  BatchNorm norm() const { return {gain, bias, mean, variance}; }
};

TEST(BatchNorm, EqualsAtenInTraining) {
  at::manual_seed(2);
  for (const auto& [samples, width] : {std::pair(2, 1), {9, 37}, {64, 48}, {130, 200}}) {
    SCOPED_TRACE(width);
    const Norms weights(width);
    const at::Tensor values = at::randn({samples, width}) * 3 + 5, dy = at::randn({samples, width});
    const at::Tensor ours = input(values), theirs = input(values);
    const at::Tensor gain = input(weights.gain.detach()), bias = input(weights.bias.detach());
    at::Tensor mean = at::zeros({width}), variance = at::zeros({width});
    const at::Tensor y = batch_norm(ours, weights.norm(), {.training = true});
    const at::Tensor expected =
        at::batch_norm(theirs, gain, bias, mean, variance, true, /*momentum=*/1, 1e-5, false);
    expect_close(y, expected, 1e-5);
    const at::Tensor moments = weights.mean.grad();
    EXPECT_TRUE(at::equal(moments, at::zeros_like(moments)));  // not before the backward
    y.backward(dy);
    expected.backward(dy);
    expect_close(ours.grad(), theirs.grad(), 2e-5);
    expect_close(weights.gain.grad(), gain.grad(), 1e-5);
    expect_close(weights.bias.grad(), bias.grad(), 1e-5);
    expect_close(mean_of(moments).to(at::kFloat), mean, 1e-6);
    expect_close(unbiased_variance_of(moments).to(at::kFloat), variance, 1e-5);
  }
}

// Like GPipe and torchgpipe: the mean of the micro-batches' variances would miss the differences of
// their means.
TEST(BatchNorm, MicroBatchesYieldStatisticsOfMiniBatch) {
  at::manual_seed(5);
  // fp32 numbers near 1000 are 6e-5 apart; sums of their squares would be 4 apart.
  for (const auto& [offset, tolerance] : {std::pair(0.0, 1e-5), {1000.0, 2e-3}}) {
    const Norms weights(37);
    const at::Tensor whole = at::randn({60, 37}) + at::arange(60).unsqueeze(1) / 20 + offset;
    at::Tensor mean = at::zeros({37}), variance = at::zeros({37});
    at::batch_norm(whole, {}, {}, mean, variance, true, /*momentum=*/1, 1e-5, false);
    for (const at::Tensor& part : whole.split_with_sizes({25, 2, 25, 8})) {
      const at::Tensor x = input(part);
      for (int forward = 0; forward < 2; ++forward) {  // as in recompute: only one backward counts
        const at::Tensor y = batch_norm(x, weights.norm(), {.training = true});
        if (forward == 1) y.backward(at::ones_like(y));
      }
    }
    expect_close(mean_of(weights.mean.grad()).to(at::kFloat), mean, 1e-6);
    expect_close(unbiased_variance_of(weights.mean.grad()).to(at::kFloat), variance, tolerance);
  }
}

TEST(BatchNorm, UsesRunningStatisticsOutsideOfTraining) {
  at::manual_seed(3);
  const Norms weights(21);
  const at::Tensor x = at::randn({1, 21});  // one sample is enough
  const at::NoGradGuard no_grad;
  expect_close(batch_norm(x, weights.norm(), {}),
               at::batch_norm(x, weights.gain, weights.bias, weights.mean, weights.variance, false,
                              0, 1e-5, false),
               1e-6);
}

TEST(BatchNorm, RefusesToTrainOnOneSample) {
  const Norms weights(4);
  EXPECT_THROW(batch_norm(input(at::ones({1, 4})), weights.norm(), {.training = true}), UserError);
}

TEST(BatchNorm, HasTheSameBitsOnAnyNumberOfThreads) {
  at::manual_seed(4);
  const at::Tensor values = at::randn({300, 192}), dy = at::randn({300, 192});
  const Norms weights(192);
  std::vector<at::Tensor> results[2];
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool, ThreadPoolScope::AtenThreads::kKeep);
    for (const at::Tensor& tensor : {weights.gain, weights.bias, weights.mean})
      tensor.grad().zero_();
    const at::Tensor x = input(values);
    const at::Tensor y = batch_norm(x, weights.norm(), {.training = true});
    y.backward(dy);
    results[threads / 2] = {y.detach(), x.grad(), weights.gain.grad().clone(),
                            weights.mean.grad().clone()};
  }
  for (std::size_t i = 0; i < results[0].size(); ++i)
    EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
}

// The definition, with ATen's operators.
at::Tensor dots_by_aten(const at::Tensor& first, const at::Tensor& rest, std::int64_t width) {
  const at::Tensor all = first.defined() ? at::cat({first, rest}, 1) : rest;
  const at::Tensor vectors = all.view({all.size(0), -1, width});
  const std::int64_t count = vectors.size(1);
  const at::Tensor products = at::bmm(vectors, vectors.transpose(1, 2));
  std::vector<at::Tensor> parts;
  if (first.defined()) parts.push_back(first);
  for (std::int64_t i = 1; i < count; ++i) parts.push_back(products.select(1, i).narrow(1, 0, i));
  return at::cat(parts, 1);
}

TEST(PairwiseDots, EqualDefinition) {
  at::manual_seed(5);
  for (const auto& [samples, vectors, width] :
       {std::tuple(1, 1, 4), {5, 2, 8}, {33, 7, 16}, {3, 26, 10}, {4, 3, 70}, {2, 26, 32}}) {
    for (const bool apart : {false, true}) {
      if (!apart && vectors == 1) continue;
      SCOPED_TRACE(width);
      const at::Tensor values = at::randn({samples, vectors * width});
      const at::Tensor ours = input(values), theirs = input(values);
      const at::Tensor first = apart ? input(at::randn({samples, width})) : at::Tensor();
      const at::Tensor other = apart ? input(first.detach()) : at::Tensor();
      const at::Tensor y = pairwise_dots(first, ours, width);
      const at::Tensor expected = dots_by_aten(other, theirs, width);
      expect_close(y, expected, 1e-5);
      const at::Tensor dy = at::randn_like(y);
      y.backward(dy);
      expected.backward(dy);
      expect_close(ours.grad(), theirs.grad(), 1e-5);
      if (apart) expect_close(first.grad(), other.grad(), 1e-5);
    }
  }
}

// Targets without fused multiply-add round products.
TEST(PairwiseDots, GivesSameBitsOnEveryTargetWithFusedMultiplyAdd) {
  at::manual_seed(7);
  const at::Tensor values = at::randn({9, 26 * 10}), other = at::randn({9, 10});
  std::vector<at::Tensor> results;
  on_every_target([&] {
    if (hwy::SupportedTargets() & (HWY_EMU128 | HWY_SSSE3 | HWY_SSE4)) return;
    const at::Tensor rest = input(values), first = input(other);
    const at::Tensor y = pairwise_dots(first, rest, 10);
    y.backward(at::cos(y.detach()));
    const std::vector<at::Tensor> now = {y.detach(), rest.grad(), first.grad()};
    if (results.empty()) results = now;
    for (std::size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(at::equal(now[i], results[i])) << i;
  });
}

TEST(Cross, EqualsDefinitionEvenForEqualInputs) {
  at::manual_seed(6);
  const at::Tensor values = at::randn({9, 21}), others = at::randn({9, 21}), h = at::randn({9, 21});
  const at::Tensor dy = at::randn({9, 21});
  const at::Tensor x0 = input(values), x = input(others), map = input(h), same = input(values);
  cross(x0, map, x).backward(dy);
  expect_close(cross(x0, map, x), values * h + others, 1e-6);
  expect_close(x0.grad(), dy * h, 1e-6);
  expect_close(map.grad(), dy * values, 1e-6);
  EXPECT_TRUE(at::equal(x.grad(), dy));
  cross(same, h, same).backward(dy);
  expect_close(same.grad(), dy * h + dy, 1e-6);
}

TEST(SideBySide, SplitsGradientBetweenInputs) {
  const at::Tensor a = input(at::randn({4, 3})), b = input(at::randn({4, 5}));
  const at::Tensor plain = at::randn({4, 3}), dy = at::randn({4, 8});
  side_by_side(a, b).backward(dy);
  EXPECT_TRUE(at::equal(a.grad(), dy.narrow(1, 0, 3)));
  EXPECT_TRUE(at::equal(b.grad(), dy.narrow(1, 3, 5)));
  b.mutable_grad().reset();
  side_by_side(plain, b).backward(dy);
  EXPECT_TRUE(at::equal(b.grad(), dy.narrow(1, 3, 5)));
}

struct Labelled {
  at::Tensor logits, labels, counts;
};

Labelled some_labels() {
  at::manual_seed(7);
  Labelled some{at::randn({40}) * 4, at::rand({40}).lt(0.3).to(at::kFloat), at::ones({40})};
  some.logits[3] = 90;
  some.logits[4] = -90;
  for (const int ignored : {0, 7, 39}) {
    some.labels[ignored] = static_cast<float>(kIgnoredTarget);
    some.counts[ignored] = 0;
  }
  return some;
}

TEST(LogisticLoss, SumsCountedSamplesAndScalesGradient) {
  const Labelled some = some_labels();
  for (const double smoothing : {0.0, 0.2}) {
    for (const bool integers : {false, true}) {
      LossSink sink;
      const ForwardContext context{
          .training = true, .loss_scale = 1.0 / 37, .loss = &sink, .label_smoothing = smoothing};
      const at::Tensor ours = input(some.logits), theirs = input(some.logits);
      const at::Tensor labels = integers ? some.labels.to(at::kLong) : some.labels;
      const at::Tensor placeholder = logistic_loss(ours, labels, context);
      EXPECT_EQ(sink.value(), 0);  // deferred
      placeholder.backward(at::ones({}));
      const at::Tensor soft = some.labels.to(at::kDouble) * (1 - smoothing) + smoothing / 2;
      const at::Tensor loss = at::binary_cross_entropy_with_logits(
          theirs.to(at::kDouble), soft, some.counts.to(at::kDouble), {}, at::Reduction::Sum);
      (loss / 37).backward();
      EXPECT_NEAR(sink.value(), loss.item<double>(), 1e-7 * loss.item<double>());
      expect_close(ours.grad() * 37, theirs.grad() * 37, 1e-6);
    }
  }
}

TEST(LogisticLoss, AppendsScoresOutsideOfTraining) {
  const Labelled some = some_labels();
  std::vector<at::Tensor> scores = {at::ones({1})};
  LossSink sink{.scores = &scores};
  const at::NoGradGuard no_grad;
  logistic_loss(some.logits, some.labels, {.training = true, .loss = &sink});
  EXPECT_EQ(scores.size(), 1u);
  logistic_loss(some.logits, some.labels, {.loss = &sink});
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_TRUE(at::equal(scores[1], some.logits));
}

}  // namespace
}  // namespace strata
