// Compares a GPT that is split among tensor-parallel ranks with one rank: loss, logits and every
// gradient.
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/base/ignored_target.h"
#include "strata/comm/ranks.h"
#include "strata/models/example_decoders_test.h"

namespace strata {
namespace {

constexpr double kTolerance = 1e-5;  // share of the largest element: only the order of sums differs

class SplitGpt : public testing::TestWithParam<TensorSplit> {};

TEST_P(SplitGpt, EqualsOneRank) {
  at::manual_seed(1);
  const TensorSplit split = GetParam();
  const at::Tensor tokens = at::randint(50, {3, 16}, at::kLong);
  at::Tensor targets = at::randint(50, {3, 16}, at::kLong);
  targets[1][7] = kIgnoredTarget;
  const ForwardContext context{.training = true,
                               .seed = 9,
                               .step = 2,
                               .first_sample = 6,
                               .loss_scale = 1.0 / 47,
                               .label_smoothing = 0.1};
  const DecoderOutcome one = run_decoder(make_gpt(small_gpt()), {tokens, targets}, context);
  const Sequential model = make_gpt(small_gpt(), DecoderOutput::kLoss, split);
  run_thread_ranks({.ranks = split.ranks}, [&](Group& group, MemoryAccount&) {
    const TensorGroup tensor(group, split.sequence);
    ForwardContext mine = context;
    mine.tensor = &tensor;
    DecoderOutcome outcome = run_decoder(model, {tokens, targets}, mine, group.rank());
    expect_same_learning(group, outcome, one, kTolerance);
  });
}

TEST_P(SplitGpt, ReturnsAllLogitsOnEveryRank) {
  at::manual_seed(2);
  const TensorSplit split = GetParam();
  const at::Tensor tokens = at::randint(50, {3, 8}, at::kLong);
  const DecoderOutcome one =
      run_decoder(make_gpt(small_gpt(), DecoderOutput::kLogits), {tokens}, {});
  const Sequential model = make_gpt(small_gpt(), DecoderOutput::kLogits, split);
  run_thread_ranks({.ranks = split.ranks}, [&](Group& group, MemoryAccount&) {
    const TensorGroup tensor(group, split.sequence);
    const DecoderOutcome outcome = run_decoder(model, {tokens}, {.tensor = &tensor}, group.rank());
    expect_close(outcome.output, one.output, "logits", kTolerance);
  });
}

TEST_P(SplitGpt, DividesShapesWeightsAndWork) {
  const TensorSplit split = GetParam();
  const Sequential one = make_gpt(small_gpt()),
                   model = make_gpt(small_gpt(), DecoderOutput::kLoss, split);
  const TensorSpec tokens{.shape = {3, 16}, .dtype = at::kLong};
  const std::vector<TensorSpec> values = model.value_specs({tokens, tokens});
  EXPECT_EQ(values[0].shape,
            (std::vector<std::int64_t>{3, split.sequence ? 16 / split.ranks : 16, 32}));
  const Layer &block = model.layer(1), &whole = one.layer(1);
  EXPECT_NE(block.signature(), whole.signature());
  EXPECT_DOUBLE_EQ(block.forward_flops(std::vector{values[0]}) * split.ranks,
                   whole.forward_flops(one.value_specs({tokens, tokens})));
  EXPECT_EQ(model.num_weights(), one.num_weights());
  EXPECT_LT(model.layout(1).own_numel, one.layout(1).own_numel);
}

// Measures the bytes of one forward and backward by the rank's account.
LayerBytes measure(const Sequential& model, int layer, const std::vector<at::Tensor>& inputs,
                   const ForwardContext& context, Group& group, MemoryAccount& account) {
  std::vector<at::Tensor> weights;
  for (const WeightPlacement& placement : model.layout(layer).placements) {
    weights.push_back(at::zeros(placement.shape).requires_grad_(true));
    weights.back().mutable_grad() = at::zeros(placement.shape);
  }
  const std::int64_t before = account.current_bytes();
  LayerBytes bytes;
  account.reset_peak();
  {
    const at::NoGradGuard no_grad;
    const at::Tensor y = model.layer(layer).forward(context, weights, inputs)[0];
    bytes.no_grad_transient = account.peak_bytes() - before - static_cast<std::int64_t>(y.nbytes());
  }
  group.barrier();
  account.reset_peak();
  const at::Tensor y = model.layer(layer).forward(context, weights, inputs)[0];
  const auto out = static_cast<std::int64_t>(y.nbytes());
  const auto in = static_cast<std::int64_t>(inputs[0].nbytes());
  group.barrier();  // the other ranks have released the exported buffers
  bytes.saved = account.current_bytes() - before - out;
  bytes.forward_transient = account.peak_bytes() - before - out - bytes.saved;
  const at::Tensor dy = at::ones_like(y);
  const std::int64_t between = account.current_bytes();
  account.reset_peak();
  y.backward(dy);
  bytes.backward_transient = account.peak_bytes() - between - in;
  return bytes;
}

TEST_P(SplitGpt, AllocatesStatedBytes) {
  const TensorSplit split = GetParam();
  DecoderOptions options = small_gpt();
  options.width = 64;
  options.context = 128;
  const Sequential model = make_gpt(options, DecoderOutput::kLoss, split);
  const TensorSpec tokens{.shape = {4, 128}, .dtype = at::kLong};
  const TensorSpec x = model.value_specs({tokens, tokens})[0];
  for (const Recompute recompute : kRecomputeLevels) {
    SCOPED_TRACE(name_of(recompute));
    const LayerBytes predicted = model.layer(1).bytes(std::vector{x}, recompute);
    run_thread_ranks({.ranks = split.ranks}, [&](Group& group, MemoryAccount& account) {
      const TensorGroup tensor(group, split.sequence);
      const ForwardContext context{.training = true, .recompute = recompute, .tensor = &tensor};
      const at::Tensor input = at::randn(x.shape).requires_grad_(true);
      const LayerBytes real = measure(model, 1, {input}, context, group, account);
      EXPECT_EQ(real.saved, predicted.saved);
      // When exported parts of activations are released depends on the slowest rank: two sums a
      // pass.
      const auto exported = static_cast<double>(2 * x.bytes() * (split.sequence ? split.ranks : 1));
      EXPECT_NEAR(real.forward_transient, predicted.forward_transient, exported);
      EXPECT_NEAR(real.backward_transient, predicted.backward_transient, exported);
      EXPECT_NEAR(real.without_graph(), predicted.without_graph(), exported);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Splits, SplitGpt, splits(), split_name);

std::string refusal(const DecoderOptions& options, TensorSplit split) {
  try {
    make_gpt(options, DecoderOutput::kLoss, split);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Gpt, RefusesUnevenRanksAndNamesNearest) {
  const std::string heads = refusal({.width = 96, .heads = 6}, {.ranks = 4});
  EXPECT_NE(heads.find("the heads do not divide"), std::string::npos) << heads;
  EXPECT_NE(heads.find("set mesh.tp to 3"), std::string::npos) << heads;
  const std::string context =
      refusal({.width = 96, .heads = 6, .context = 50}, {.ranks = 3, .sequence = true});
  EXPECT_NE(context.find("the positions of the context"), std::string::npos) << context;
  EXPECT_NE(context.find("set mesh.tp to 2"), std::string::npos) << context;
  EXPECT_EQ(refusal({.width = 96, .heads = 6, .context = 50}, {.ranks = 3}), "");
}

}  // namespace
}  // namespace strata
