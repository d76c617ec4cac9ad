// Compares a Llama with one written in plain ATen, and one split among tensor-parallel ranks with
// one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "strata/base/errors.h"
#include "strata/base/ignored_target.h"
#include "strata/comm/ranks.h"
#include "strata/models/example_decoders_test.h"

namespace strata {
namespace {

constexpr double kTolerance = 2e-5;  // share of the largest element: only the order of sums differs

// ---- The same model in plain ATen, with weights by our names.

using Weights = std::map<std::string, at::Tensor>;

at::Tensor norm(const at::Tensor& x, const at::Tensor& gain) {
  return x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * gain;
}

at::Tensor turned(const at::Tensor& x, double theta) {  // [B, H, T, D]
  const std::int64_t half = x.size(3) / 2;
  const at::Tensor exponents = at::arange(half).to(at::kDouble) / static_cast<double>(half);
  const at::Tensor angles =
      at::outer(at::arange(x.size(2)).to(at::kDouble), at::pow(theta, -exponents)).to(at::kFloat);
  const at::Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
  return at::cat({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()}, 3);
}

at::Tensor attention(const at::Tensor& x, Weights& w, const std::string& name,
                     const DecoderOptions& o) {
  at::Tensor qkv = at::linear(x, w[name + "qkv.weight"]);
  if (o.qkv_bias) qkv = qkv + w[name + "qkv.bias"];
  const auto part = [&](std::int64_t begin, std::int64_t heads) {
    return qkv.narrow(2, begin * o.head_width, heads * o.head_width)
        .view({x.size(0), x.size(1), heads, o.head_width})
        .transpose(1, 2);
  };
  at::Tensor q = part(0, o.heads), k = part(o.heads, o.kv_heads);
  if (o.qk_norm) {
    q = norm(q, w[name + "query_norm.weight"]);
    k = norm(k, w[name + "key_norm.weight"]);
  }
  const std::int64_t group = o.heads / o.kv_heads;
  k = turned(k, o.rope.theta).repeat_interleave(group, 1);
  const at::Tensor v = part(o.heads + o.kv_heads, o.kv_heads).repeat_interleave(group, 1);
  const at::Tensor scores = at::matmul(turned(q, o.rope.theta), k.transpose(-1, -2)) /
                            std::sqrt(static_cast<double>(o.head_width));
  const at::Tensor mask = at::ones({x.size(1), x.size(1)}).triu(1).to(at::kBool);
  const at::Tensor y = at::matmul(scores.masked_fill(mask, -INFINITY).softmax(-1), v);
  return at::linear(y.transpose(1, 2).reshape({x.size(0), x.size(1), o.heads * o.head_width}),
                    w[name + "out.weight"]);
}

at::Tensor plain_loss(Weights& w, const DecoderOptions& o, const at::Tensor& tokens,
                      const at::Tensor& targets) {
  at::Tensor x = at::embedding(w["embed.tokens.weight"], tokens);
  for (std::int64_t i = 0; i < o.layers; ++i) {
    const std::string block = "block" + std::to_string(i) + ".";
    x = x + attention(norm(x, w[block + "norm1.weight"]), w, block + "attention.", o);
    const at::Tensor gate_up =
        at::linear(norm(x, w[block + "norm2.weight"]), w[block + "mlp.gate_up.weight"]);
    const at::Tensor gate = gate_up.narrow(2, 0, o.mlp_width);
    x = x + at::linear(at::silu(gate) * gate_up.narrow(2, o.mlp_width, o.mlp_width),
                       w[block + "mlp.down.weight"]);
  }
  const at::Tensor logits = at::linear(norm(x, w["head.norm.weight"]), w["head.weight"]);
  return at::cross_entropy_loss(logits.view({-1, o.vocab}), targets.view(-1));
}

struct Batch {
  at::Tensor tokens = at::randint(50, {3, 16}, at::kLong);
  at::Tensor targets = at::randint(50, {3, 16}, at::kLong);
  Batch() { targets[1][7] = kIgnoredTarget; }
};

constexpr double kTargets = 3 * 16 - 1;

class LlamaKind : public testing::TestWithParam<DecoderOptions> {};

TEST_P(LlamaKind, EqualsPlainAten) {
  at::manual_seed(1);
  const DecoderOptions options = GetParam();
  const Batch batch;
  const DecoderOutcome ours =
      run_decoder(make_llama(options), {batch.tokens, batch.targets},
                  {.training = true,
                   .recompute = options.tie ? Recompute::kNone : Recompute::kCheap,
                   .loss_scale = 1 / kTargets});
  Weights weights;
  for (std::size_t i = 0; i < ours.leaves.size(); ++i)
    weights[ours.specs[i].name] = ours.leaves[i].detach().clone().requires_grad_(true);
  const at::Tensor loss = plain_loss(weights, options, batch.tokens, batch.targets);
  EXPECT_NEAR(ours.loss / kTargets, loss.item<double>(), 1e-5 * ours.loss);
  loss.backward();
  for (std::size_t i = 0; i < ours.leaves.size(); ++i)
    expect_close(ours.leaves[i].grad(), weights[ours.specs[i].name].grad(), ours.specs[i].name,
                 kTolerance);
}

std::string kind_name(const testing::TestParamInfo<DecoderOptions>& info) {
  return info.param.qkv_bias ? "Qwen2" : info.param.qk_norm ? "Qwen3" : "Llama";
}

INSTANTIATE_TEST_SUITE_P(Kinds, LlamaKind,
                         testing::Values(small_llama(), small_qwen2(), small_qwen3()), kind_name);

// ---- Split

class SplitLlama : public testing::TestWithParam<TensorSplit> {};

TEST_P(SplitLlama, EqualsOneRank) {
  at::manual_seed(2);
  const TensorSplit split = GetParam();
  const Batch batch;
  const ForwardContext context{.training = true, .loss_scale = 1 / kTargets};
  for (const DecoderOptions& options : {small_qwen2(), small_qwen3()}) {
    const DecoderOutcome one =
        run_decoder(make_llama(options), {batch.tokens, batch.targets}, context);
    const Sequential model = make_llama(options, DecoderOutput::kLoss, split);
    run_thread_ranks({.ranks = split.ranks}, [&](Group& group, MemoryAccount&) {
      const TensorGroup tensor(group, split.sequence);
      ForwardContext mine = context;
      mine.tensor = &tensor;
      DecoderOutcome outcome =
          run_decoder(model, {batch.tokens, batch.targets}, mine, group.rank());
      expect_same_learning(group, outcome, one, kTolerance);
    });
  }
}

TEST_P(SplitLlama, ReturnsAllLogitsOnEveryRank) {
  at::manual_seed(3);
  const TensorSplit split = GetParam();
  const at::Tensor tokens = at::randint(50, {3, 8}, at::kLong);
  const DecoderOutcome one =
      run_decoder(make_llama(small_llama(), DecoderOutput::kLogits), {tokens}, {});
  const Sequential model = make_llama(small_llama(), DecoderOutput::kLogits, split);
  run_thread_ranks({.ranks = split.ranks}, [&](Group& group, MemoryAccount&) {
    const TensorGroup tensor(group, split.sequence);
    const DecoderOutcome outcome = run_decoder(model, {tokens}, {.tensor = &tensor}, group.rank());
    expect_close(outcome.output, one.output, "logits", kTolerance);
  });
}

INSTANTIATE_TEST_SUITE_P(Splits, SplitLlama, splits(), split_name);

TEST(Llama, RefusesRanksThatDoNotDivideKeyHeads) {
  try {
    make_llama(small_llama(), DecoderOutput::kLoss, {.ranks = 8});
    FAIL() << "no refusal";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("set mesh.tp to 4"), std::string::npos)
        << error.what();
  }
}

TEST(Llama, RefusesSamplesLongerThanContext) {
  const TensorSpec tokens{.shape = {2, 17}, .dtype = at::kLong};
  EXPECT_THROW(make_llama(small_llama()).value_specs({tokens, tokens}), UserError);
}

}  // namespace
}  // namespace strata
