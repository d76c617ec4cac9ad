// Compares the operators of Llama-like models with ATen's formulas: values, gradients, and
// unchanged bits.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/embedding.h"
#include "strata/nn/ops/linear.h"

namespace strata {
namespace {

constexpr double kEpsilon = 1e-5;

// A leaf with a zeroed gradient, like those of a store.
at::Tensor weight(at::IntArrayRef shape) {
  at::Tensor tensor = at::randn(shape).requires_grad_(true);
  tensor.mutable_grad() = at::zeros(shape);
  return tensor;
}

at::Tensor input(at::IntArrayRef shape) { return at::randn(shape).requires_grad_(true); }

at::Tensor twin(const at::Tensor& tensor) { return tensor.detach().clone().requires_grad_(true); }

void expect_close(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  ASSERT_TRUE(a.defined() && b.defined());
  const double scale = std::max(1.0, b.abs().max().item<double>());
  EXPECT_LE((a - b).abs().max().item<double>() / scale, tolerance);
}

// Compares pairs of (Strata's leaf, its twin) after both backwards with the same gradient.
void expect_same_gradients(const at::Tensor& y, const at::Tensor& y2,
                           std::initializer_list<std::pair<at::Tensor, at::Tensor>> leaves,
                           double tolerance = 2e-5) {
  expect_close(y, y2, 1e-5);
  const at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  y2.backward(dy);
  for (const auto& [ours, theirs] : leaves) expect_close(ours.grad(), theirs.grad(), tolerance);
}

Norm rms_norm(const at::Tensor& gain) { return {.gain = gain, .epsilon = kEpsilon}; }

at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& gain) {
  return x * at::rsqrt(x.square().mean(-1, true) + kEpsilon) * gain;
}

at::Tensor plain_rope(const at::Tensor& x, const RopeOptions& options) {  // [B, H, T, D]
  const std::int64_t half = x.size(3) / 2;
  const at::Tensor frequencies =
      at::pow(options.theta, at::arange(half).to(at::kDouble) * (-1.0 / static_cast<double>(half)));
  const at::Tensor angles =
      at::outer(at::arange(x.size(2)).to(at::kDouble), frequencies).to(at::kFloat);
  const at::Tensor cosine = at::cat({angles, angles}, 1).cos();
  const at::Tensor sine = at::cat({angles, angles}, 1).sin();
  const at::Tensor turned = at::cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, 3);
  return x * cosine + turned * sine;
}

TEST(RmsNorm, EqualsTheFormula) {
  at::manual_seed(1);
  for (const std::int64_t columns : {48, 37}) {
    const at::Tensor x = input({3, 5, columns}), gain = weight({columns});
    const at::Tensor x2 = twin(x), gain2 = twin(gain);
    expect_same_gradients(normalise(x, rms_norm(gain)), plain_rms_norm(x2, gain2),
                          {{x, x2}, {gain, gain2}});
  }
}

TEST(RmsNormLinear, EqualsNormThenLinearWithAndWithoutBias) {
  at::manual_seed(2);
  for (const bool keep : {false, true}) {
    for (const bool biased : {false, true}) {
      const at::Tensor x = input({3, 37, 48}), gain = weight({48}), w = weight({80, 48});
      const at::Tensor b = weight({80});
      const at::Tensor x2 = twin(x), gain2 = twin(gain), w2 = twin(w), b2 = twin(b);
      const at::Tensor y = norm_linear(x, rms_norm(gain), w, biased ? b : at::Tensor(), keep);
      const at::Tensor y2 =
          at::linear(plain_rms_norm(x2, gain2), w2, biased ? std::optional(b2) : std::nullopt);
      if (biased) {
        expect_same_gradients(y, y2, {{x, x2}, {gain, gain2}, {w, w2}, {b, b2}});
      } else {
        expect_same_gradients(y, y2, {{x, x2}, {gain, gain2}, {w, w2}});
      }
    }
  }
}

TEST(SwigluLinear, EqualsGatedProductThenLinear) {
  at::manual_seed(3);
  for (const bool keep : {false, true}) {
    for (const std::int64_t width : {64, 43}) {
      const at::Tensor x = input({5, 31, 2 * width}), w = weight({48, width});
      const at::Tensor x2 = twin(x), w2 = twin(w);
      const at::Tensor y2 =
          at::linear(at::silu(x2.narrow(2, 0, width)) * x2.narrow(2, width, width), w2);
      expect_same_gradients(activation_linear(Activation::kSwiglu, x, w, {}, keep), y2,
                            {{x, x2}, {w, w2}});
    }
  }
}

TEST(LinearWithoutBias, EqualsLinear) {
  at::manual_seed(4);
  const at::Tensor x = input({5, 31, 64}), w = weight({48, 64});
  const at::Tensor x2 = twin(x), w2 = twin(w);
  expect_same_gradients(strata::linear(x, w, {}), at::linear(x2, w2), {{x, x2}, {w, w2}});
}

TEST(TokenEmbedding, EqualsLookup) {
  at::manual_seed(5);
  const at::Tensor w = weight({20, 24}), w2 = twin(w);
  const at::Tensor tokens = at::randint(20, {3, 16}, at::kLong);
  expect_same_gradients(token_embedding(tokens, w), at::embedding(w2, tokens), {{w, w2}});
}

// Masked softmax over repeated key and value heads, after rotary positions.
at::Tensor plain_attention(const at::Tensor& qkv, const Attention& o, std::int64_t heads,
                           const at::Tensor& query_gain, const at::Tensor& key_gain) {
  const std::int64_t kv = heads / o.queries_per_key, d = o.head_width, length = qkv.size(1);
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    return qkv.narrow(2, begin * d, count * d).view({qkv.size(0), length, count, d});
  };
  at::Tensor q = part(0, heads), k = part(heads, kv), v = part(heads + kv, kv);
  if (query_gain.defined()) {
    q = plain_rms_norm(q, query_gain);
    k = plain_rms_norm(k, key_gain);
  }
  q = plain_rope(q.transpose(1, 2), *o.rope);
  k = plain_rope(k.transpose(1, 2), *o.rope).repeat_interleave(o.queries_per_key, 1);
  v = v.transpose(1, 2).repeat_interleave(o.queries_per_key, 1);
  const at::Tensor scores = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(d));
  const at::Tensor mask = at::ones({length, length}).triu(1).to(at::kBool);
  return at::matmul(scores.masked_fill(mask, -INFINITY).softmax(-1), v)
      .transpose(1, 2)
      .reshape({qkv.size(0), length, heads * d});
}

TEST(GroupedAttention, EqualsMaskedSoftmaxOverRepeatedHeads) {
  at::manual_seed(6);
  for (const std::int64_t group : {1, 2, 4}) {
    for (const std::int64_t width : {16, 10}) {
      const Attention o{
          .head_width = width, .queries_per_key = group, .rope = RopeOptions{.theta = 100.0}};
      const at::Tensor qkv = input({2, 33, (4 + 2 * 4 / group) * width}), qkv2 = twin(qkv);
      expect_same_gradients(attend(qkv * 1.0, o, {}), plain_attention(qkv2, o, 4, {}, {}),
                            {{qkv, qkv2}});
    }
  }
}

TEST(GroupedAttention, NormalisesHeadsBeforeAttention) {
  at::manual_seed(7);
  const at::Tensor qkv = input({2, 33, 8 * 16}), q = weight({16}), k = weight({16});
  const Attention o{.head_width = 16,
                    .queries_per_key = 2,
                    .rope = RopeOptions{},
                    .query_gain = q,
                    .key_gain = k,
                    .norm_epsilon = kEpsilon};
  const at::Tensor qkv2 = twin(qkv), q2 = twin(q), k2 = twin(k);
  expect_same_gradients(attend(qkv, o, {}), plain_attention(qkv2, o, 4, q2, k2),
                        {{qkv, qkv2}, {q, q2}, {k, k2}});
}

TEST(Rope, TurnsAsFastAsLlama3) {
  const RopeOptions options{.theta = 500000, .factor = 8};
  const std::vector<float> frequencies = rope_frequencies(options, 128);
  // inv_freq of transformers 5.23, rope_type llama3: unchanged, blended, slowed down.
  for (const auto& [pair, expected] : {std::pair(0, 1.0f),
                                       {28, 0.0032114461f},
                                       {30, 0.0013718937f},
                                       {32, 0.00052484602f},
                                       {34, 0.00017850779f},
                                       {36, 7.7846555e-05f},
                                       {63, 3.0689259e-07f}})
    EXPECT_NEAR(frequencies[pair], expected, 1e-6f * expected) << pair;
}

// Meta tensors replace a device: they have storages, but no bytes.
TEST(Rope, DeviceKeepsOneTableOfDoublingSize) {
  const RopeOptions options{.theta = 777};
  const auto table = [&](std::int64_t length, std::int64_t first) {
    return rope_table(options, 8, length, first, at::kMeta);
  };
  const at::Tensor short_table = table(3, 0);
  EXPECT_EQ(short_table.sizes(), at::IntArrayRef({3, 8}));
  EXPECT_TRUE(table(1, 3).is_alias_of(short_table));
  EXPECT_EQ(table(1, 3).storage_offset(), 3 * 8);
  const at::Tensor long_table = table(5, 0);
  EXPECT_FALSE(long_table.is_alias_of(short_table));
  EXPECT_EQ(long_table.storage().nbytes(), 8u * 8 * sizeof(float));
  EXPECT_FALSE(rope_table({.theta = 778}, 8, 3, 0, at::kMeta).is_alias_of(long_table));
  EXPECT_FALSE(
      rope_table(options, 8, 3, 0, at::kCPU).is_alias_of(rope_table(options, 8, 3, 0, at::kCPU)));
}

// All operators of a block have the same bits with 1, 2 and 3 threads.
TEST(LlamaOps, DoNotDependOnTheNumberOfThreads) {
  at::manual_seed(8);
  const int C = 48, B = 4, T = 64, F = 80, D = 16;
  const at::Tensor dy = at::randn({B, T, C});
  const at::Tensor tokens = at::randint(32, {B, T}, at::kLong);
  const std::vector<at::Tensor> w0 = {
      at::randn({32, C}), at::randn({C}),        at::randn({6 * D, C}), at::randn({D}),
      at::randn({D}),     at::randn({C, 4 * D}), at::randn({C}),        at::randn({2 * F, C}),
      at::randn({C, F}),  at::randn({8 * D, C})};
  std::vector<std::vector<at::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    std::vector<at::Tensor> w;
    for (const at::Tensor& value : w0) {
      w.push_back(twin(value));
      w.back().mutable_grad() = at::zeros_like(value);
    }
    at::Tensor x = token_embedding(tokens, w[0]);
    const RopeOptions rope;
    const Attention normed{
        .head_width = D, .queries_per_key = 4, .rope = rope, .query_gain = w[3], .key_gain = w[4]};
    at::Tensor y = norm_linear(x, rms_norm(w[1]), w[2], {}, false);
    x = x + strata::linear(attend(y, normed, {}), w[5], {});
    y = norm_linear(x, rms_norm(w[1]), w[9], {}, false);
    const Attention pairs{.head_width = D, .queries_per_key = 2, .rope = rope};
    x = x + strata::linear(attend(y, pairs, {}), w[5], {});
    y = norm_linear(x, rms_norm(w[6]), w[7], {}, false);
    x = x + activation_linear(Activation::kSwiglu, y, w[8], {}, false);
    x.backward(dy);
    results.emplace_back(std::vector<at::Tensor>{x.detach()});
    for (const at::Tensor& value : w) results.back().push_back(value.grad());
  }
  at::set_num_threads(1);
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
    EXPECT_TRUE(at::equal(results[0][i], results[2][i])) << i;
  }
}

}  // namespace
}  // namespace strata
