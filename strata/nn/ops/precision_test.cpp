// Compares every operator in bf16 and fp16 with itself in fp32 on the same (rounded) values.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>

#include "strata/device/thread_pool.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/embedding.h"
#include "strata/nn/ops/head_loss.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr std::int64_t kManyElements = 1 << 16;  // more than one piece of a loop

using Tensors = std::vector<at::Tensor>;
Norm rms_norm(const at::Tensor& gain) { return {.gain = gain, .epsilon = kEpsilon}; }

using Operator = std::function<at::Tensor(const Tensors& inputs, const Tensors& weights)>;

struct Shapes {
  std::vector<std::vector<std::int64_t>> inputs, weights;
};

struct Outcome {
  at::Tensor y;
  Tensors input_gradients, weight_gradients;
};

// Like a store's leaves: gradients in fp32 for all types of weights.
Outcome run(const Operator& op, const Tensors& inputs, const Tensors& weights, at::ScalarType dtype,
            const std::function<at::Tensor(const at::Tensor&)>& gradient_at) {
  Tensors x, w;
  for (const at::Tensor& input : inputs)
    x.push_back(input.to(dtype, /*non_blocking=*/false, /*copy=*/true).requires_grad_());
  for (const at::Tensor& weight : weights) {
    w.push_back(weight.to(dtype, /*non_blocking=*/false, /*copy=*/true).requires_grad_());
    w.back().mutable_grad() = at::zeros(weight.sizes());
  }
  Outcome outcome{.y = op(x, w), .input_gradients = {}, .weight_gradients = {}};
  outcome.y.backward(gradient_at(outcome.y).to(outcome.y.scalar_type()));
  outcome.y = outcome.y.detach();
  for (const at::Tensor& input : x) outcome.input_gradients.push_back(input.grad());
  for (const at::Tensor& weight : w) outcome.weight_gradients.push_back(weight.grad());
  return outcome;
}

// Tests both ways of computing products, whichever the processor would choose.
class Precision : public testing::TestWithParam<std::tuple<at::ScalarType, bool>> {
 protected:
  Precision() : widen_(std::get<1>(GetParam())) { at::manual_seed(1); }
  static at::ScalarType dtype() { return std::get<0>(GetParam()); }
  static bool widens() { return std::get<1>(GetParam()); }

  const WidenProducts widen_;
  // Relative to the largest element. Half the spacing of numbers near 1 is 2^-9 and 2^-12; a result
  // has been rounded a few times.
  static double tolerance() { return dtype() == at::kBFloat16 ? 0x1p-6 : 0x1p-9; }

  static at::Tensor draw(at::IntArrayRef shape, double scale = 1) {
    return at::randn(shape).mul_(scale).to(dtype());
  }

  static void expect_close(const at::Tensor& half, const at::Tensor& whole, const char* what) {
    ASSERT_TRUE(half.defined() && whole.defined()) << what;
    const double scale = whole.abs().max().item<double>();
    EXPECT_LE((half.to(at::kFloat) - whole).abs().max().item<double>(), tolerance() * scale)
        << what;
  }

  static void expect_rounded(const at::Tensor& half, const at::Tensor& whole) {
    EXPECT_EQ(half.scalar_type(), dtype());
    EXPECT_TRUE(at::equal(half, whole.to(dtype())));
  }

  static void expect_like_fp32(const Operator& op, const Shapes& shapes) {
    Tensors inputs, weights;
    for (const auto& shape : shapes.inputs) inputs.push_back(draw(shape));
    for (const auto& shape : shapes.weights) weights.push_back(draw(shape));
    at::Tensor dy;
    const auto gradient_at = [&](const at::Tensor& y) {
      if (!dy.defined()) dy = draw(y.sizes());
      return dy;
    };
    const Outcome half = run(op, inputs, weights, dtype(), gradient_at);
    const Outcome whole = run(op, inputs, weights, at::kFloat, gradient_at);
    EXPECT_EQ(half.y.scalar_type(), dtype());
    expect_close(half.y, whole.y, "output");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(half.input_gradients[i].scalar_type(), dtype());
      expect_close(half.input_gradients[i], whole.input_gradients[i], "gradient at an input");
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(half.weight_gradients[i].scalar_type(), at::kFloat);
      expect_close(half.weight_gradients[i], whole.weight_gradients[i], "gradient of a weight");
    }
  }
};

TEST_P(Precision, ComputesProducts) {
  expect_like_fp32([](const auto& x, const auto& w) { return linear(x[0], w[0], w[1]); },
                   {{{3, 37, 32}}, {{24, 32}, {24}}});
  expect_like_fp32([](const auto& x, const auto& w) { return strata::linear(x[0], w[0], {}); },
                   {{{3, 37, 32}}, {{24, 32}}});
  for (const bool keep : {false, true}) {
    expect_like_fp32(
        [&](const auto& x, const auto& w) {
          return norm_linear(x[0], {w[0], w[1]}, w[2], w[3], keep);
        },
        {{{3, 37, 32}}, {{32}, {32}, {24, 32}, {24}}});
    expect_like_fp32(
        [&](const auto& x, const auto& w) {
          return activation_linear(Activation::kGelu, x[0], w[0], w[1], keep);
        },
        {{{3, 37, 32}}, {{24, 32}, {24}}});
    expect_like_fp32(
        [&](const auto& x, const auto& w) {
          return norm_linear(x[0], rms_norm(w[0]), w[1], w[2], keep);
        },
        {{{3, 37, 32}}, {{32}, {24, 32}, {24}}});
    expect_like_fp32(
        [&](const auto& x, const auto& w) {
          return activation_linear(Activation::kSwiglu, x[0], w[0], {}, keep);
        },
        {{{3, 37, 2 * 43}}, {{24, 43}}});
  }
}

// More elements than a piece.
TEST_P(Precision, ComputesNormsInManyPieces) {
  const std::int64_t rows = 2 * kManyElements / 24 + 5;
  expect_like_fp32([](const auto& x, const auto& w) { return normalise(x[0], {w[0], w[1]}); },
                   {{{rows, 24}}, {{24}, {24}}});
  expect_like_fp32([](const auto& x, const auto& w) { return normalise(x[0], rms_norm(w[0])); },
                   {{{rows, 24}}, {{24}}});
}

TEST_P(Precision, ComputesAttention) {
  expect_like_fp32([](const auto& x, const auto&) { return attend(x[0], {.head_width = 16}, {}); },
                   {{{2, 33, 3 * 32}}, {}});
  const Attention options{.head_width = 16, .queries_per_key = 2, .rope = RopeOptions{}};
  // Passes a copy, because the operator turns it in place.
  expect_like_fp32([&](const auto& x, const auto&) { return attend(x[0] * 1.0, options, {}); },
                   {{{2, 33, 8 * 16}}, {}});
  expect_like_fp32(
      [&](const auto& x, const auto& w) {
        Attention normed = options;
        normed.query_gain = w[0];
        normed.key_gain = w[1];
        return attend(x[0], normed, {});
      },
      {{{2, 33, 8 * 16}}, {{16}, {16}}});
}

TEST_P(Precision, LooksUpRows) {
  const at::Tensor tokens = at::randint(20, {3, 16}, at::kLong);
  expect_like_fp32([&](const auto&, const auto& w) { return embedding(tokens, w[0], w[1]); },
                   {{}, {{20, 24}, {16, 24}}});
  expect_like_fp32([&](const auto&, const auto& w) { return token_embedding(tokens, w[0]); },
                   {{}, {{20, 24}}});
}

TEST_P(Precision, RoundsPointwiseResultsOnce) {
  const std::int64_t rows = kManyElements / 24 + 5;
  const at::Tensor x = draw({2, rows, 24}), gain = draw({24}), bias = draw({24});
  const auto wide = [](const at::Tensor& value) { return value.to(at::kFloat); };
  expect_rounded(normalise(x, {gain, bias}), normalise(wide(x), {wide(gain), wide(bias)}));
  expect_rounded(normalise(x, rms_norm(gain)), normalise(wide(x), rms_norm(wide(gain))));
  const ForwardContext context{.training = true, .seed = 3, .first_sample = 5};
  const Dropout some{.probability = 0.3, .site = 1};
  const at::Tensor residual = draw({2, rows, 24});
  expect_rounded(dropout(x, some, context), dropout(wide(x), some, context));
  expect_rounded(residual_dropout(residual, x, some, context),
                 residual_dropout(wide(residual), wide(x), some, context));
  const at::Tensor odd = draw({3, kManyElements / 2 + 1});  // samples that masks can't cut
  expect_rounded(dropout(odd, some, context), dropout(wide(odd), some, context));
  const at::Tensor heads = draw({2, rows / 2, 3, 32}), turned = wide(heads);
  const at::Tensor table = rope_table({}, 32, rows / 2, 0, x.device());
  for (const at::Tensor& some_heads : {heads, turned})
    primitives(x).attention.rotate(some_heads.narrow(2, 1, 2), table, RopeTurn::kForward);
  expect_rounded(heads, turned);
}

TEST_P(Precision, ComputesLossInFp32AndScalesGradient) {
  constexpr std::int64_t kRows = head_chunk_rows(DeviceKind::kCpu) + 77, kWidth = 16, kClasses = 37;
  const at::Tensor x = draw({kRows, kWidth}), w = draw({kClasses, kWidth});
  at::Tensor targets = at::randint(kClasses, {kRows}, at::kLong);
  targets[3] = -100;
  const double scale = dtype() == at::kHalf ? 1024 : 1;
  LossSink sinks[2];
  const auto loss_with = [&](int which, double factor) {
    return [&, which, factor](const Tensors& inputs, const Tensors& weights) {
      return head_loss(inputs[0], weights[0], targets, kClasses,
                       {.training = true,
                        .loss_scale = factor / kRows,
                        .loss = &sinks[which],
                        .label_smoothing = 0.1});
    };
  };
  const auto one = [](const at::Tensor&) { return at::ones({}); };
  const Outcome half = run(loss_with(0, scale), {x}, {w}, dtype(), one);
  const Outcome whole = run(loss_with(1, 1), {x}, {w}, at::kFloat, one);
  EXPECT_EQ(half.y.scalar_type(), at::kFloat);
  EXPECT_NEAR(sinks[0].value(), sinks[1].value(), tolerance() * sinks[1].value());
  expect_close(half.input_gradients[0].to(at::kFloat) / scale, whole.input_gradients[0], "x");
  expect_close(half.weight_gradients[0] / scale, whole.weight_gradients[0], "weight");
}

TEST_P(Precision, AddsWeightGradientsInFp32) {
  at::Tensor weight = at::zeros({16, 8}, dtype()).requires_grad_();
  weight.mutable_grad() = at::full({16, 8}, 4096.0f);  // adding 1/4 to it is lost in 16 bit
  const at::Tensor dy = at::ones({4, 16}, dtype()), x = at::full({4, 8}, 0.0625).to(dtype());
  for (int i = 0; i < 3; ++i) accumulate_weight_gradient(weight, dy, x);
  EXPECT_TRUE(at::equal(weight.grad(), at::full({16, 8}, 4096.75f)));
  at::Tensor bias = at::zeros({16}, dtype()).requires_grad_();
  bias.mutable_grad() = at::full({16}, 4096.0f);
  accumulate_bias_gradient(bias, dy * 0.0625);
  EXPECT_TRUE(at::equal(bias.grad(), at::full({16}, 4096.25f)));
}

TEST_P(Precision, HasSameBitsForKeptValuesAndAnyThreads) {
  const at::Tensor x = draw({4, 64, 32}), w = draw({32, 32}), gain = draw({32}), bias = draw({32});
  const at::Tensor dy = draw({4, 64, 32});
  std::vector<Outcome> outcomes;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (const bool keep : {false, true}) {
      outcomes.push_back(run(
          [&](const Tensors& in, const Tensors& weights) {
            const at::Tensor up =
                norm_linear(in[0], {weights[1], weights[2]}, weights[0], weights[3], keep);
            return activation_linear(Activation::kGelu, up, weights[4], weights[5], keep);
          },
          {x}, {w, gain, bias, bias, w, bias}, dtype(), [&](const at::Tensor&) { return dy; }));
    }
  }
  at::set_num_threads(1);
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(at::equal(outcome.y, outcomes[0].y));
    EXPECT_TRUE(at::equal(outcome.input_gradients[0], outcomes[0].input_gradients[0]));
    for (std::size_t i = 0; i < outcome.weight_gradients.size(); ++i)
      EXPECT_TRUE(at::equal(outcome.weight_gradients[i], outcomes[0].weight_gradients[i])) << i;
  }
}

// Also the pool's pieces: more rows than one, widths at which products are cut.
TEST_P(Precision, ManyThreadsGiveTheBitsOfOne) {
  const std::int64_t rows = widens() || dtype() == at::kBFloat16 ? 640 : 64;
  const at::Tensor x = draw({2, rows / 2, 64}), dy = draw({2, rows / 2, 64});
  // Small weights: fp16 overflows otherwise.
  const double small = 0.1;
  const at::Tensor qkv = draw({192, 64}, small), qkv_bias = draw({192}, small);
  const at::Tensor out = draw({64, 64}, small), one = draw({64}, small);
  const at::Tensor up = draw({640, 64}, small), up_bias = draw({640}, small);
  const at::Tensor down = draw({64, 640}, small), gate_up = draw({640, 64}, small);
  const at::Tensor swiglu_down = draw({64, 320}, small);
  std::vector<Outcome> outcomes;
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool);
    outcomes.push_back(run(
        [&](const Tensors& in, const Tensors& w) {
          const at::Tensor attended =
              attend(norm_linear(in[0], {w[0], w[0]}, w[1], w[2], false), {.head_width = 16}, {});
          const at::Tensor y = residual_dropout(in[0], linear(attended, w[3], w[0]), {}, {});
          const at::Tensor z =
              activation_linear(Activation::kGelu, norm_linear(y, {w[0], w[0]}, w[4], w[5], false),
                                w[6], w[0], false);
          const at::Tensor gated = norm_linear(z, rms_norm(w[0]), w[7], {}, false);
          return residual_dropout(z, activation_linear(Activation::kSwiglu, gated, w[8], {}, false),
                                  {}, {});
        },
        {x}, {one, qkv, qkv_bias, out, up, up_bias, down, gate_up, swiglu_down}, dtype(),
        [&](const at::Tensor&) { return dy; }));
  }
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(at::equal(outcome.y, outcomes[0].y));
    EXPECT_TRUE(at::equal(outcome.input_gradients[0], outcomes[0].input_gradients[0]));
    for (std::size_t i = 0; i < outcome.weight_gradients.size(); ++i)
      EXPECT_TRUE(at::equal(outcome.weight_gradients[i], outcomes[0].weight_gradients[i])) << i;
  }
}

// Half the spacing of bf16 is lost if an exact sum is rounded before it is added.
TEST_P(Precision, WidenedProductsRoundOnce) {
  if (!widens()) GTEST_SKIP() << "the processor's own products round by themselves";
  const at::Tensor x = draw({70, 48}), w = draw({32, 48}), b = draw({32}), dy = draw({70, 32});
  const at::Tensor wide = at::addmm(b.to(at::kFloat), x.to(at::kFloat), w.to(at::kFloat).t());
  expect_rounded(primitives(x).products.product(x, w, b), wide);
  at::Tensor dx = at::empty_like(x);
  primitives(dy).products.input_gradient(dx, dy, w);
  expect_rounded(dx, at::mm(dy.to(at::kFloat), w.to(at::kFloat)));
  at::Tensor weight = w.clone().requires_grad_();
  weight.mutable_grad() = at::zeros({32, 48});
  accumulate_weight_gradient(weight, dy, x);
  EXPECT_TRUE(at::equal(weight.grad(),
                        at::zeros({32, 48}).addmm_(dy.to(at::kFloat).t(), x.to(at::kFloat))));
}

INSTANTIATE_TEST_SUITE_P(Halves, Precision,
                         testing::Combine(testing::Values(at::kBFloat16, at::kHalf),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(c10::toString(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "Widened" : "Own");
                         });

}  // namespace
}  // namespace strata
