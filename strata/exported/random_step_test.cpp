#include "strata/exported/random_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using Kind = RandomStep::Kind;

constexpr std::int64_t kSamples = 6;

ForwardContext training(std::int64_t first_sample = 0) {
  return {.training = true, .seed = 5, .step = 3, .first_sample = first_sample, .layer = 2};
}

at::Tensor apply(const RandomStep& step, const at::Tensor& x, std::int64_t first_sample = 0) {
  return step.apply(x, x.size(0), training(first_sample));
}

// Every form gives a sample the same numbers, whatever the other samples of the micro-batch are.
TEST(RandomStep, NumbersBelongToSamples) {
  const at::Tensor x = at::randn({kSamples, 8, 5, 5});
  for (const Kind kind : {Kind::kDropout, Kind::kAlphaDropout, Kind::kBernoulli})
    for (const bool channels : {false, true}) {
      const RandomStep step{.kind = kind, .by_channel = channels, .dropout = {0.4, 1}};
      const at::Tensor whole = apply(step, x);
      EXPECT_TRUE(at::equal(
          whole, at::cat({apply(step, x.narrow(0, 0, 1)), apply(step, x.narrow(0, 1, 5), 1)})));
      RandomStep other = step;
      other.dropout.site = 2;
      EXPECT_FALSE(at::equal(whole, apply(other, x))) << "another use draws other numbers";
      EXPECT_FALSE(at::equal(whole.select(0, 0), apply(step, x.narrow(0, 0, 1), 1).select(0, 0)));
    }
}

TEST(RandomStep, DropoutOfChannelsKeepsOrDropsWholeChannels) {
  const at::Tensor x = at::ones({kSamples, 64, 7});
  const at::Tensor y = apply({.kind = Kind::kDropout, .by_channel = true, .dropout = {0.25, 0}}, x);
  EXPECT_TRUE(at::equal(y, y.narrow(2, 0, 1).expand_as(y)));
  const at::Tensor first = y.select(2, 0);
  EXPECT_TRUE((first.eq(0) | (first - 4.0 / 3).abs().lt(1e-6)).all().item<bool>());
  EXPECT_NEAR(first.mean().item<double>(), 1, 0.1);
}

TEST(RandomStep, AlphaDropoutKeepsMeanAndVariance) {
  const at::Tensor x = at::randn({64, 4096});
  const at::Tensor y = apply({.kind = Kind::kAlphaDropout, .dropout = {0.3, 0}}, x);
  EXPECT_NEAR(y.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(y.var().item<double>(), 1, 0.02);
}

TEST(RandomStep, BernoulliNumbersAreZeroOrOneAndTheirProbabilityInAnEvaluation) {
  const at::Tensor x = at::zeros({4096, 1, 1});
  const RandomStep step{.kind = Kind::kBernoulli, .dropout = {0.2, 0}};
  const at::Tensor drawn = apply(step, x);
  EXPECT_TRUE((drawn.eq(0) | drawn.eq(1)).all().item<bool>());
  EXPECT_NEAR(drawn.mean().item<double>(), 0.8, 0.03);
  ForwardContext evaluation = training();
  evaluation.training = false;
  EXPECT_TRUE(at::equal(step.apply(x, 4096, evaluation), at::ones({4096, 1, 1}) * 0.8));
}

TEST(RandomStep, ExtremesAndEvaluationsDrawNothing) {
  const at::Tensor x = at::randn({kSamples, 3});
  EXPECT_TRUE(at::equal(apply({.dropout = {1, 0}}, x), at::zeros({kSamples, 3})));
  EXPECT_TRUE(at::equal(apply({.dropout = {0, 0}}, x), x));
  const RandomStep one{.kind = Kind::kBernoulli, .dropout = {0, 0}};
  const RandomStep zero{.kind = Kind::kBernoulli, .dropout = {1, 0}};
  EXPECT_TRUE(at::equal(apply(one, x), at::ones({kSamples, 3})));
  EXPECT_TRUE(at::equal(apply(zero, x), at::zeros({kSamples, 3})));
  ForwardContext evaluation = training();
  evaluation.training = false;
  for (const Kind kind : {Kind::kDropout, Kind::kAlphaDropout})
    EXPECT_TRUE(
        at::equal(RandomStep{.kind = kind, .dropout = {0.5, 0}}.apply(x, kSamples, evaluation), x));
}

}  // namespace
}  // namespace strata
