// Compares a Llama with one written in plain ATen, and one split among tensor-parallel ranks with
// one rank.
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/base/ignored_target.h"
#include "strata/comm/ranks.h"
#include "strata/models/example_decoders_test.h"
#include "strata/models/plain_llama_test.h"

namespace strata {
namespace {

constexpr double kTolerance = 2e-5;  // share of the largest element: only the order of sums differs

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
  plain_llama::Weights weights;
  for (std::size_t i = 0; i < ours.leaves.size(); ++i)
    weights[ours.specs[i].name] = ours.leaves[i].detach().clone().requires_grad_(true);
  const at::Tensor loss = plain_llama::mean_loss(weights, options, batch.tokens, batch.targets);
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
