// Compares Strata's operators with ATen's: values, gradients, and unchanged bits.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strata/base/every_target_test.h"
#include "strata/base/philox.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/kernels/kernels.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/embedding.h"
#include "strata/nn/ops/head_loss.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

// A leaf with a zeroed gradient, like those of a store.
at::Tensor leaf(at::IntArrayRef shape, double scale = 1.0) {
  at::Tensor tensor = at::randn(shape).mul_(scale).requires_grad_(true);
  tensor.mutable_grad() = at::zeros(shape);
  return tensor;
}

at::Tensor twin(const at::Tensor& tensor) { return tensor.detach().clone().requires_grad_(true); }

void expect_close(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  ASSERT_TRUE(a.defined() && b.defined());
  const double scale = std::max(1.0, b.abs().max().item<double>());
  EXPECT_LE((a - b).abs().max().item<double>() / scale, tolerance);
}

void expect_same_bits(const at::Tensor& a, const at::Tensor& b) { EXPECT_TRUE(at::equal(a, b)); }

TEST(NormLinear, EqualsLayerNormThenLinear) {
  at::manual_seed(1);
  for (const bool keep : {false, true}) {
    at::Tensor x = leaf({3, 37, 48}), gain = leaf({48}), shift = leaf({48}), w = leaf({80, 48}),
               b = leaf({80});
    x.mutable_grad().reset();
    at::Tensor x2 = twin(x), gain2 = twin(gain), shift2 = twin(shift), w2 = twin(w), b2 = twin(b);
    const at::Tensor y = norm_linear(x, {gain, shift}, w, b, keep);
    const at::Tensor y2 = at::linear(at::layer_norm(x2, {48}, gain2, shift2), w2, b2);
    expect_close(y, y2, 1e-5);
    const at::Tensor dy = at::randn_like(y);
    y.backward(dy);
    y2.backward(dy);
    for (const auto& [ours, theirs] :
         {std::pair(x, x2), {gain, gain2}, {shift, shift2}, {w, w2}, {b, b2}})
      expect_close(ours.grad(), theirs.grad(), 2e-5);
  }
}

TEST(GeluLinear, EqualsTanhGeluThenLinear) {
  at::manual_seed(2);
  for (const bool keep : {false, true}) {
    at::Tensor x = leaf({5, 31, 64}, 3.0), w = leaf({48, 64}), b = leaf({48});
    x.mutable_grad().reset();
    at::Tensor x2 = twin(x), w2 = twin(w), b2 = twin(b);
    const at::Tensor y = activation_linear(Activation::kGelu, x, w, b, keep);
    const at::Tensor y2 = at::linear(at::gelu(x2, "tanh"), w2, b2);
    expect_close(y, y2, 1e-5);
    const at::Tensor dy = at::randn_like(y);
    y.backward(dy);
    y2.backward(dy);
    for (const auto& [ours, theirs] : {std::pair(x, x2), {w, w2}, {b, b2}})
      expect_close(ours.grad(), theirs.grad(), 2e-5);
  }
}

TEST(GeluLinear, HasSameBitsForKeptAndRecomputedOutput) {
  at::manual_seed(3);
  const at::Tensor x0 = at::randn({4, 64, 64}), dy = at::randn({4, 64, 32});
  const at::Tensor w0 = at::randn({32, 64});
  at::Tensor gradients[2][2];
  for (const int keep : {0, 1}) {
    at::Tensor x = twin(x0), w = twin(w0), b = leaf({32});
    w.mutable_grad() = at::zeros_like(w0);
    activation_linear(Activation::kGelu, x, w, b, keep).backward(dy);
    gradients[keep][0] = x.grad();
    gradients[keep][1] = w.grad();
  }
  for (const int i : {0, 1}) expect_same_bits(gradients[0][i], gradients[1][i]);
}

// Like ATen; a NaN has many codes, and none of them may become a number.
TEST(Elements, AreRoundedAndWidenedOnEveryInstructionSet) {
  at::manual_seed(2);
  at::Tensor bits = at::randint(std::int64_t{1} << 32, {1 << 18}, at::kLong);
  // NaN with all bits and with only the last one; 65519.99 and 65520, on both sides of fp16's
  // infinity; halves of the smallest numbers.
  const std::int64_t edges[] = {0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F800000,
                                0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001,
                                0x80000000, 0x00008000, 0x00018000, 0x387FF000};
  for (int i = 0; i < 12; ++i) bits[i] = edges[i];
  const at::Tensor x = bits.to(at::kInt).view(at::kFloat);
  const at::Tensor codes = at::arange(1 << 16, at::kInt).to(at::kShort);
  for (const auto& [element, dtype] : {std::pair{kernels::Element::kBf16, at::kBFloat16},
                                       std::pair{kernels::Element::kFp16, at::kHalf}}) {
    const at::Tensor narrow = x.to(dtype), wide = codes.view(dtype).to(at::kFloat);
    on_every_target([&] {
      at::Tensor ours = at::empty_like(narrow), ours_wide = at::empty_like(wide);
      kernels::narrow(element, x.const_data_ptr<float>(), ours.data_ptr(), x.numel());
      kernels::widen(element, codes.const_data_ptr(), ours_wide.data_ptr<float>(), codes.numel());
      EXPECT_TRUE(at::equal(ours.isnan(), narrow.isnan()));
      EXPECT_TRUE(at::equal(ours.masked_select(~narrow.isnan()).view(at::kShort),
                            narrow.masked_select(~narrow.isnan()).view(at::kShort)));
      EXPECT_TRUE(at::equal(ours_wide.isnan(), wide.isnan()));
      EXPECT_TRUE(at::equal(ours_wide.masked_select(~wide.isnan()).view(at::kInt),
                            wide.masked_select(~wide.isnan()).view(at::kInt)));
    });
  }
}

TEST(Gelu, TreatsTheTailLikeTheBody) {
  const at::Tensor x = at::linspace(-12, 12, 101);
  const at::Tensor whole = at::empty(128), single = at::empty(1);
  at::Tensor padded = at::zeros(128);
  padded.narrow(0, 0, 101).copy_(x);
  kernels::gelu(kernels::Element::kFp32, padded.const_data_ptr<float>(), whole.data_ptr<float>(),
                128);
  for (int i = 0; i < 101; ++i) {
    kernels::gelu(kernels::Element::kFp32, x.const_data_ptr<float>() + i, single.data_ptr<float>(),
                  1);
    EXPECT_EQ(single.item<float>(), whole[i].item<float>());
  }
  expect_close(whole.narrow(0, 0, 101), at::gelu(x, "tanh"), 1e-6);
}

TEST(CausalAttention, EqualsMaskedSoftmax) {
  at::manual_seed(4);
  const int B = 2, T = 33, H = 4, D = 16;
  at::Tensor qkv = leaf({B, T, 3 * H * D});
  qkv.mutable_grad().reset();
  at::Tensor twin_qkv = twin(qkv);
  const at::Tensor y = attend(qkv, {.head_width = D}, {});
  const auto part = [&](int i) {
    return twin_qkv.narrow(2, i * H * D, H * D).view({B, T, H, D}).transpose(1, 2);
  };
  const at::Tensor scores = at::matmul(part(0), part(1).transpose(-1, -2)) / std::sqrt(double{D});
  const at::Tensor mask = at::ones({T, T}).triu(1).to(at::kBool);
  const at::Tensor y2 = at::matmul(scores.masked_fill(mask, -INFINITY).softmax(-1), part(2))
                            .transpose(1, 2)
                            .reshape({B, T, H * D});
  expect_close(y, y2, 1e-5);
  const at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  y2.backward(dy);
  expect_close(qkv.grad(), twin_qkv.grad(), 1e-5);
}

TEST(HeadLoss, EqualsLinearThenCrossEntropyAcrossChunks) {
  at::manual_seed(5);
  const int R = 2 * head_chunk_rows(DeviceKind::kCpu) + 77, C = 32, V = 50;
  at::Tensor x = leaf({R, C}), w = leaf({V, C});
  x.mutable_grad().reset();
  at::Tensor x2 = twin(x), w2 = twin(w);
  at::Tensor targets = at::randint(V, {R}, at::kLong);
  targets[3] = -100;
  LossSink sink;
  const ForwardContext context{.training = true, .loss_scale = 1.0 / (R - 1), .loss = &sink};
  head_loss(x, w, targets, V, context).backward();
  const at::Tensor loss = at::cross_entropy_loss(at::linear(x2, w2), targets);
  loss.backward();
  EXPECT_NEAR(sink.value() / (R - 1), loss.item<double>(), 1e-5);
  expect_close(x.grad() * R, x2.grad() * R, 1e-5);
  expect_close(w.grad(), w2.grad(), 1e-5);

  LossSink evaluated;
  const at::NoGradGuard no_grad;
  head_loss(x, w, targets, V, {.loss_scale = 1, .loss = &evaluated});
  EXPECT_EQ(evaluated.value(), sink.value());
}

TEST(HeadLoss, SmoothsOverAllClassesAsATenDoes) {
  at::manual_seed(9);
  const int R = head_chunk_rows(DeviceKind::kCpu) + 40, C = 32,
            V = 53;  // not a multiple of a vector
  constexpr double kSmoothing = 0.2;
  at::Tensor x = leaf({R, C}), w = leaf({V, C});
  x.mutable_grad().reset();
  at::Tensor x2 = twin(x), w2 = twin(w);
  at::Tensor targets = at::randint(V, {R}, at::kLong);
  targets[7] = -100;
  LossSink sink;
  head_loss(x, w, targets, V,
            {.loss_scale = 1.0 / (R - 1), .loss = &sink, .label_smoothing = kSmoothing})
      .backward();
  // The definition: (1 - s) * loss at the target + s * mean over the classes, only rows with a
  // target.
  const at::Tensor losses = -at::linear(x2, w2).log_softmax(-1);
  const at::Tensor valid = targets != -100;
  const at::Tensor at_target = losses.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
  const at::Tensor smoothed = (1 - kSmoothing) * at_target + kSmoothing * losses.mean(-1);
  const at::Tensor loss = smoothed.masked_select(valid).mean();
  loss.backward();
  EXPECT_NEAR(sink.value() / (R - 1), loss.item<double>(), 1e-5);
  expect_close(x.grad() * R, x2.grad() * R, 1e-5);
  expect_close(w.grad(), w2.grad(), 1e-5);
}

TEST(Embedding, EqualsLookupPlusPositions) {
  at::manual_seed(6);
  at::Tensor w = leaf({20, 24}), p = leaf({16, 24});
  at::Tensor w2 = twin(w), p2 = twin(p);
  const at::Tensor tokens = at::randint(20, {3, 16}, at::kLong);
  const at::Tensor y = embedding(tokens, w, p);
  const at::Tensor y2 = at::embedding(w2, tokens) + p2;
  expect_same_bits(y, y2);
  const at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  y2.backward(dy);
  expect_close(w.grad(), w2.grad(), 1e-6);
  expect_close(p.grad(), p2.grad(), 1e-6);
}

TEST(Dropout, DropsRequestedShareAndScalesTheRest) {
  const at::Tensor x = at::ones({8, 4096});
  const ForwardContext context{.training = true, .seed = 7, .step = 3};
  const at::Tensor y = dropout(x, {.probability = 0.25}, context);
  const double dropped = (y == 0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(dropped, 0.25, 0.01);
  expect_close(at::masked_select(y, y != 0), at::full({1}, 1 / 0.75), 1e-6);
}

TEST(Dropout, MaskDependsOnSampleNotMicroBatch) {
  const at::Tensor x = at::ones({6, 3 * 40});  // not a multiple of a vector
  const ForwardContext all{.training = true, .seed = 7};
  ForwardContext tail = all;
  tail.first_sample = 4;
  const Dropout half{.probability = 0.5};
  expect_same_bits(dropout(x, half, all).narrow(0, 4, 2), dropout(x.narrow(0, 4, 2), half, tail));
  for (const auto& other : {ForwardContext{.training = true, .seed = 8},
                            {.training = true, .seed = 7, .step = 1},
                            {.training = true, .seed = 7, .layer = 1}})
    EXPECT_FALSE(at::equal(dropout(x, half, all), dropout(x, half, other)));
}

TEST(Dropout, EqualsPhiloxOfCounter) {
  constexpr int kNumel = 1000;
  const at::Tensor x = at::ones({kNumel}), y = at::empty({kNumel});
  const kernels::DropoutMask mask{
      .key = 0x123456789abcdefull, .site = 5, .threshold = 1u << 31, .scale = 2};
  kernels::dropout_add(kernels::Element::kFp32, nullptr, x.const_data_ptr<float>(),
                       y.data_ptr<float>(), mask, 9, 16, kNumel);
  for (std::uint32_t i = 0; i < kNumel; ++i) {
    const PhiloxBlock block = philox({(16 + i) / 4, 9, 5, 0}, {0x89abcdef, 0x1234567});
    EXPECT_EQ(y[i].item<float>(), block[i % 4] >= mask.threshold ? 2.0f : 0.0f) << i;
  }
}

TEST(Dropout, BackwardUsesTheSameMaskAndTheResidualPassesThrough) {
  const ForwardContext context{.training = true, .seed = 1};
  at::Tensor residual = at::randn({2, 64}).requires_grad_(),
             x = at::randn({2, 64}).requires_grad_();
  const Dropout half{.probability = 0.5};
  const at::Tensor y = residual_dropout(residual, x, half, context);
  expect_same_bits(y, residual + dropout(x, half, context));
  y.backward(at::ones_like(y));
  expect_same_bits(residual.grad(), at::ones_like(y));
  expect_same_bits(x.grad(), dropout(at::ones_like(y), half, context));
}

// All operators of a block have the same bits with 1, 2 and 3 threads.
TEST(Ops, DoNotDependOnTheNumberOfThreads) {
  at::manual_seed(8);
  const int C = 48, B = 4, T = 64;
  const at::Tensor x0 = at::randn({B, T, C}), dy = at::randn({B, T, C});
  const at::Tensor tokens = at::randint(32, {B, T}, at::kLong);
  std::vector<at::Tensor> w0 = {at::randn({C}),     at::randn({C}),        at::randn({3 * C, C}),
                                at::randn({3 * C}), at::randn({C, 3 * C}), at::randn({C}),
                                at::randn({32, C}), at::randn({T, C})};
  std::vector<std::vector<at::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    std::vector<at::Tensor> w;
    for (const at::Tensor& weight : w0) {
      w.push_back(twin(weight));
      w.back().mutable_grad() = at::zeros_like(weight);
    }
    at::Tensor x = twin(x0);
    const ForwardContext context{.training = true, .seed = 3};
    at::Tensor y = norm_linear(x + embedding(tokens, w[6], w[7]), {w[0], w[1]}, w[2], w[3], false);
    y = activation_linear(Activation::kGelu, y, w[4], w[5], false);
    y = residual_dropout(x, y, {.probability = 0.1}, context);
    y.backward(dy);
    results.emplace_back(std::vector<at::Tensor>{y.detach(), x.grad()});
    for (const at::Tensor& weight : w) results.back().push_back(weight.grad());
  }
  at::set_num_threads(1);
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    expect_same_bits(results[0][i], results[1][i]);
    expect_same_bits(results[0][i], results[2][i]);
  }
}

// Widths that strips, single vectors and the end of a row divide, and those one short of them; the
// elements after a sum must not change.
TEST(ColumnSums, AreAddedToExistingSumsOnly) {
  at::manual_seed(11);
  constexpr int kGuard = 16;
  for (const std::int64_t columns : {1, 7, 15, 16, 31, 37, 63, 64, 127, 130}) {
    SCOPED_TRACE(columns);
    const auto filled = [&](double value) {
      return at::full({columns + kGuard}, value).narrow(0, 0, columns);
    };
    const auto expect_sums = [&](const at::Tensor& sums, const at::Tensor& expected,
                                 double rest_value) {
      expect_close(sums, expected, 1e-6);
      const at::Tensor rest = sums.as_strided({kGuard}, {1}, columns);
      EXPECT_TRUE(at::equal(rest, at::full({kGuard}, rest_value)));
    };
    const at::Tensor x = at::randn({5, columns}), sum = filled(2);
    primitives(x).products.add_column_sums(sum, x);
    expect_sums(sum, x.sum(0) + 2, 2);

    const Norm layer{at::randn({columns}), at::randn({columns})}, rms{layer.gain};
    for (const Norm& norm : {layer, rms}) {
      NormStatistics statistics;
      primitives(x).norms.norm(x, norm, statistics);
      const NormSums once{at::zeros({columns}), at::zeros({columns})};
      const NormSums onto{filled(3), filled(3)};
      for (const NormSums& sums : {once, onto})
        primitives(x).norms.norm_gradient(x, at::ones_like(x), norm, statistics, sums);
      expect_sums(onto.gain, once.gain + 3, 3);
      if (norm.bias.defined()) expect_sums(onto.bias, once.bias + 3, 3);
    }
  }
}

// A token of a text that is being generated.
TEST(Ops, PiecesOfASingleRowGiveTheBitsOfTheWhole) {
  at::manual_seed(10);
  for (const auto& [in, out] : {std::pair(384, 1152), {1536, 2000}, {768, 32000}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = at::randn({1, in}).to(dtype), w = at::randn({out, in}).to(dtype);
      const at::Tensor bias = at::randn({out}).to(dtype);
      std::vector<at::Tensor> products, logits;
      for (const int threads : {1, 2, 3, 5}) {
        ThreadPool pool(threads);
        const ThreadPoolScope scope(pool);
        products.push_back(primitives(x).products.product(x, w, bias));
        logits.push_back(primitives(x).products.logits(x, w));
        expect_same_bits(products.back(), products.front());
        expect_same_bits(logits.back(), logits.front());
      }
      // Libraries add up one row in another order than four, and decoding needs the order of many.
      if (dtype == at::kFloat)
        expect_same_bits(products.front(),
                         at::addmm(bias, x.expand({4, in}).contiguous(), w.t()).narrow(0, 0, 1));
    }
  }
}

// Products, attention and loops in pieces have the same bits in fp32 as the whole.
TEST(Ops, PiecesGiveTheBitsOfTheWhole) {
  at::manual_seed(9);
  const int C = 384, B = 8, T = 128;  // long enough for MKL to block sums of weight gradients
  const at::Tensor x0 = at::randn({B, T, C}), dy = at::randn({B, T, C});
  const std::vector<at::Tensor> w0 = {
      at::randn({C}),        at::randn({3 * C, C}), at::randn({3 * C}),   at::randn({C, C}),
      at::randn({4 * C, C}), at::randn({4 * C}),    at::randn({C, 4 * C})};
  std::vector<std::vector<at::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    const ThreadPoolScope scope(pool);
    std::vector<at::Tensor> w;
    for (const at::Tensor& weight : w0) {
      w.push_back(twin(weight));
      w.back().mutable_grad() = at::zeros_like(weight);
    }
    const at::Tensor x = twin(x0);
    const at::Tensor mixed =
        attend(norm_linear(x, {w[0], w[0]}, w[1], w[2], false), {.head_width = C / 6}, {});
    const at::Tensor y = residual_dropout(x, linear(mixed, w[3], w[0]), {}, {});
    const at::Tensor z = activation_linear(
        Activation::kGelu, norm_linear(y, {w[0], w[0]}, w[4], w[5], false), w[6], w[0], false);
    z.backward(dy);
    results.emplace_back(std::vector<at::Tensor>{z.detach(), x.grad()});
    for (const at::Tensor& weight : w) results.back().push_back(weight.grad());
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    expect_same_bits(results[0][i], results[1][i]);
    expect_same_bits(results[0][i], results[2][i]);
  }
}

}  // namespace
}  // namespace strata
