// Compares operators that are split among tensor-parallel ranks with one rank: values and every
// gradient.
#include "strata/comm/tensor_group.h"

#include <gtest/gtest.h>

#include <functional>

#include "strata/base/ignored_target.h"
#include "strata/comm/ranks.h"
#include "strata/models/example_decoders_test.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/embedding.h"
#include "strata/nn/ops/head_loss.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

constexpr std::int64_t kBatch = 2, kLength = 12, kWidth = 32, kHeads = 4, kInner = 48;
constexpr double kTolerance = 1e-5;  // share of the largest element: only the order of sums differs

// A split region, from an input between regions to an output between regions.
struct Region {
  std::vector<WeightSpec> specs;
  std::function<at::Tensor(const ForwardContext& context, const std::vector<at::Tensor>& weights,
                           const at::Tensor& x)>
      apply;
};

struct Outcome {
  at::Tensor y, dx;
  std::vector<at::Tensor> gradients;
  double loss = 0;
};

WeightSpec weight(std::vector<std::int64_t> shape, WeightSplit split = {}) {
  return {.name = "w", .shape = std::move(shape), .split = std::move(split)};
}

Outcome run(const Region& region, const std::vector<at::Tensor>& weights, const at::Tensor& x,
            const at::Tensor& dy, ForwardContext context) {
  LossSink sink;
  context.loss = &sink;
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& value : weights) {
    leaves.push_back(value.clone().requires_grad_(true));
    leaves.back().mutable_grad() = at::zeros_like(value);
  }
  const bool differentiable = x.is_floating_point();
  const at::Tensor input = differentiable ? x.clone().requires_grad_(true) : x;
  const at::Tensor y = region.apply(context, leaves, input);
  y.backward(y.dim() == 0 ? at::ones({}) : dy);
  Outcome outcome{.y = y.detach(), .dx = differentiable ? input.grad() : at::Tensor{}};
  for (const at::Tensor& leaf : leaves) outcome.gradients.push_back(leaf.grad());
  outcome.loss = sink.value();
  return outcome;
}

class TensorParallelRanks : public testing::TestWithParam<TensorSplit> {
 protected:
  // Expects that every rank's part of the result equals that of one rank.
  void expect_as_one_rank(const Region& region, const at::Tensor& x, ForwardContext context = {}) {
    context.training = true;
    context.seed = 11;
    context.first_sample = 3;
    std::vector<at::Tensor> weights;
    for (const WeightSpec& spec : region.specs) weights.push_back(at::randn(spec.shape) * 0.5);
    const at::Tensor dy = at::randn({kBatch, kLength, kWidth});
    const Outcome one = run(region, weights, x, dy, context);
    const auto [ranks, sequence, unused] = GetParam();
    run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount&) {
      const TensorGroup tensor(group, sequence);
      const auto part = [&](const at::Tensor& whole) {
        if (!sequence || whole.dim() < 3) return whole;
        return whole.chunk(ranks, 1)[group.rank()].contiguous();
      };
      std::vector<at::Tensor> slices;
      for (std::size_t i = 0; i < weights.size(); ++i)
        slices.push_back(slice_of(weights[i], region.specs[i], group.rank(), ranks));
      ForwardContext mine = context;
      mine.tensor = &tensor;
      Outcome split = run(region, slices, part(x), part(dy), mine);
      expect_close(split.y, part(one.y), "output", kTolerance);
      if (one.dx.defined()) expect_close(split.dx, part(one.dx), "gradient at x", kTolerance);
      EXPECT_NEAR(split.loss, one.loss, kTolerance * one.loss);
      for (std::size_t i = 0; i < slices.size(); ++i) {
        const WeightSpec& spec = region.specs[i];
        if (sequence && spec.split.axis < 0) all_reduce_sum(group, split.gradients[i]);
        expect_close(split.gradients[i], slice_of(one.gradients[i], spec, group.rank(), ranks),
                     "gradient of weight " + std::to_string(i), kTolerance);
      }
    });
  }
};

TEST_P(TensorParallelRanks, DivideHeadsOfAttention) {
  at::manual_seed(1);
  const WeightSplit heads{.axis = 0, .sections = {kWidth, kWidth, kWidth}, .unit = kWidth / kHeads};
  for (const bool keep : {false, true}) {
    const Region region{
        {weight({kWidth}), weight({kWidth}), weight({3 * kWidth, kWidth}, heads),
         weight({3 * kWidth}, heads), weight({kWidth, kWidth}, {.axis = 1}), weight({kWidth})},
        [=](const ForwardContext& context, const auto& w, const at::Tensor& x) {
          const at::Tensor qkv =
              norm_linear(x, {w[0], w[1]}, w[2], w[3], keep, ColumnParallel{context.tensor});
          const at::Tensor y = linear(attend(qkv, {.head_width = kWidth / kHeads}, context), w[4],
                                      w[5], RowParallel{context.tensor});
          return residual_dropout(x, y, {.probability = 0.2, .site = 1}, context);
        }};
    expect_as_one_rank(region, at::randn({kBatch, kLength, kWidth}));
  }
}

TEST_P(TensorParallelRanks, DivideMlp) {
  at::manual_seed(2);
  for (const bool keep : {false, true}) {
    const Region region{
        {weight({kWidth}), weight({kWidth}), weight({kInner, kWidth}, {.axis = 0}),
         weight({kInner}, {.axis = 0}), weight({kWidth, kInner}, {.axis = 1}), weight({kWidth})},
        [=](const ForwardContext& context, const auto& w, const at::Tensor& x) {
          const at::Tensor up =
              norm_linear(x, {w[0], w[1]}, w[2], w[3], keep, ColumnParallel{context.tensor});
          return activation_linear(Activation::kGelu, up, w[4], w[5], keep,
                                   RowParallel{context.tensor});
        }};
    expect_as_one_rank(region, at::randn({kBatch, kLength, kWidth}));
  }
}

TEST_P(TensorParallelRanks, EmbedAndDropLikeOneRank) {
  at::manual_seed(3);
  constexpr std::int64_t kVocab = 22;  // not a multiple of 4: the last rank's slice has padding
  const Region region{{weight({kVocab, kWidth}, {.axis = 0}), weight({kLength + 4, kWidth})},
                      [](const ForwardContext& context, const auto& w, const at::Tensor& tokens) {
                        return dropout(embedding(tokens, w[0], w[1], context.tensor),
                                       {.probability = 0.3}, context);
                      }};
  expect_as_one_rank(region, at::randint(kVocab, {kBatch, kLength}, at::kLong));
}

// 5 classes on 4 ranks: the last rank has none. 50 classes: slices of 13, 13, 13 and 11.
TEST_P(TensorParallelRanks, DivideVocabularyOfLoss) {
  at::manual_seed(4);
  for (const std::int64_t vocab : {5, 48, 50}) {
    at::Tensor targets = at::randint(vocab, {kBatch, kLength}, at::kLong);
    targets[0][3] = kIgnoredTarget;
    targets[1][0] = kIgnoredTarget;
    const Region region{{weight({kWidth}), weight({kWidth}), weight({vocab, kWidth}, {.axis = 0})},
                        [=](const ForwardContext& context, const auto& w, const at::Tensor& x) {
                          return head_loss(normalise(x, {w[0], w[1]}), w[2], targets, vocab,
                                           context);
                        }};
    for (const double smoothing : {0.0, 0.1})
      expect_as_one_rank(region, at::randn({kBatch, kLength, kWidth}),
                         {.loss_scale = 1.0 / 22, .label_smoothing = smoothing});
  }
}

TEST_P(TensorParallelRanks, ComputeLossWithoutBackward) {
  at::manual_seed(5);
  constexpr std::int64_t kVocab = 50, kRows = 2 * head_chunk_rows(DeviceKind::kCpu) + 8;
  const WeightSpec spec = weight({kVocab, kWidth}, {.axis = 0});
  const at::Tensor x = at::randn({1, kRows, kWidth}), w = at::randn({kVocab, kWidth});
  const at::Tensor targets = at::randint(kVocab, {1, kRows}, at::kLong);
  LossSink one;
  {
    const at::NoGradGuard no_grad;
    head_loss(x, w, targets, kVocab, {.loss = &one, .label_smoothing = 0.2});
  }
  const auto [ranks, sequence, unused] = GetParam();
  run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount&) {
    const at::NoGradGuard no_grad;
    const TensorGroup tensor(group, sequence);
    LossSink sink;
    head_loss(sequence ? x.chunk(ranks, 1)[group.rank()].contiguous() : x,
              slice_of(w, spec, group.rank(), ranks), targets, kVocab,
              {.loss = &sink, .label_smoothing = 0.2, .tensor = &tensor});
    EXPECT_NEAR(sink.value(), one.value(), kTolerance * one.value());
  });
}

INSTANTIATE_TEST_SUITE_P(Splits, TensorParallelRanks, splits(), split_name);

}  // namespace
}  // namespace strata
