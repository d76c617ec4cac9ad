/// Makes small decoders for tests, runs all their layers forward and backward on a rank, and
/// compares a rank's slices with the whole tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "strata/comm/collectives.h"
#include "strata/comm/tensor_group.h"
#include "strata/models/model.h"
#include "strata/nn/graph/initialise.h"
#include "strata/nn/graph/layout.h"

namespace strata {

inline DecoderOptions small_gpt() {
  return {.layers = 2,
          .width = 32,
          .heads = 4,
          .vocab = 50,  // not a multiple of 4
          .context = 16,
          .dropout = 0.1,
          .skip = true};
}

/// The MLP's width and the vocabulary are not divisible by the number of ranks.
inline DecoderOptions small_llama() {
  return {.kind = DecoderKind::kLlama,
          .layers = 2,
          .width = 32,
          .heads = 8,
          .vocab = 50,
          .context = 16,
          .tie = true,
          .kv_heads = 4,
          .head_width = 6,
          .mlp_width = 43};
}

inline DecoderOptions small_qwen2() {
  DecoderOptions options = small_llama();
  options.tie = false;
  options.qkv_bias = true;
  return options;
}

inline DecoderOptions small_qwen3() {
  DecoderOptions options = small_llama();
  options.qk_norm = true;
  return options;
}

struct DecoderOutcome {
  double loss = 0;
  at::Tensor output;
  std::vector<WeightSpec> specs;
  std::vector<at::Tensor> leaves;  ///< for each use of a weight, as specs
};

/// Runs all layers forward and, if the model ends with a loss, backward. Every weight is random,
/// including biases and gains, because zeros would hide errors in their use.
inline DecoderOutcome run_decoder(const Sequential& model, const std::vector<at::Tensor>& batch,
                                  ForwardContext context, int rank = 0) {
  DecoderOutcome outcome;
  LossSink sink;
  context.loss = &sink;
  std::vector<at::Tensor> values(model.dataflow().values.size());
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const std::size_t first = outcome.leaves.size();
    for (WeightSpec spec : model.layout(layer).specs) {
      spec.init = {Init::Kind::kNormal, 0.3};
      const at::Tensor leaf = at::zeros(slice_shape(spec, model.split().ranks));
      initialise(leaf, spec, model.name(layer), 5, rank, model.split().ranks);
      outcome.leaves.push_back(leaf.requires_grad_(true));
      outcome.leaves.back().mutable_grad() = at::zeros_like(leaf);
      outcome.specs.push_back(spec);
      outcome.specs.back().name = model.name(layer) + "." + spec.name;
    }
    std::vector<at::Tensor> inputs;
    for (const InputRef& ref : model.inputs(layer))
      inputs.push_back(ref.value >= 0 ? values[ref.value] : batch[ref.batch_input]);
    context.layer = layer;
    const auto weights = std::span<const at::Tensor>(outcome.leaves).subspan(first);
    values[model.outputs(layer)[0]] = model.layer(layer).forward(context, weights, inputs)[0];
  }
  const int last = model.num_layers() - 1;
  const at::Tensor& output = values[model.outputs(last)[0]];
  outcome.output = output.detach();
  if (model.layer(last).is_loss()) output.backward();
  outcome.loss = sink.value();
  return outcome;
}

inline at::Tensor slice_of(const at::Tensor& whole, const WeightSpec& spec, int rank, int ranks) {
  at::Tensor part = at::zeros(slice_shape(spec, ranks));
  for (const Run& run : slice_runs(spec, rank, ranks))
    part.view(-1)
        .narrow(0, run.local, run.numel)
        .copy_(whole.view(-1).narrow(0, run.global, run.numel));
  return part;
}

/// `tolerance` is a share of the largest element.
inline void expect_close(const at::Tensor& a, const at::Tensor& b, const std::string& what,
                         double tolerance) {
  ASSERT_TRUE(a.defined() && b.defined()) << what;
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const double scale = std::max(1e-3, b.abs().max().item<double>());
  EXPECT_LE((a - b).abs().max().item<double>() / scale, tolerance) << what;
}

/// Compares a split rank's loss and gradients with those of one rank. Adds up gradients of which
/// each rank has a part.
inline void expect_same_learning(Group& group, DecoderOutcome& mine, const DecoderOutcome& one,
                                 double tolerance) {
  EXPECT_NEAR(mine.loss, one.loss, tolerance * one.loss);
  ASSERT_EQ(mine.leaves.size(), one.leaves.size());
  for (std::size_t i = 0; i < one.leaves.size(); ++i) {
    const WeightSpec& spec = mine.specs[i];
    at::Tensor gradient = mine.leaves[i].grad();
    if (spec.partial_gradient) all_reduce_sum(group, gradient);
    expect_close(gradient, slice_of(one.leaves[i].grad(), spec, group.rank(), group.size()),
                 spec.name, tolerance);
  }
}

/// Names a parameterised test: "4RanksSequence".
inline std::string split_name(const testing::TestParamInfo<TensorSplit>& info) {
  return std::to_string(info.param.ranks) + "Ranks" + (info.param.sequence ? "Sequence" : "");
}

inline auto splits() {
  return testing::Values(TensorSplit{2, false}, TensorSplit{2, true}, TensorSplit{4, false},
                         TensorSplit{4, true});
}

}  // namespace strata
