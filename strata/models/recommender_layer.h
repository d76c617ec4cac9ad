/// Holds what the layers of all recommenders are made of, and adds those that they share.
///
/// Shapes  B samples; values [B, width] fp32, scores [B].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/models/recommender.h"
#include "strata/nn/graph/layer.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

/// A product with a weight, maybe normalised over the micro-batch, then the activation.
struct HiddenUnit {
  std::int64_t in = 0, out = 0;
  bool batch_norm = false;
  HiddenActivation activation = HiddenActivation::kRelu;

  std::vector<WeightSpec> weights(const std::string& prefix = "") const;
  std::size_t num_weights() const { return batch_norm ? 6 : 2; }
  /// `weights`: those of weights().
  at::Tensor forward(const ForwardContext& context, std::span<const at::Tensor> weights,
                     const at::Tensor& x) const;
  std::string signature() const;
  /// Saved of so many samples, between its input and its output, which it doesn't count.
  std::int64_t saved_bytes(std::int64_t samples) const;
};

/// What makers of recommenders are given; `options` are completed().
struct RecommenderSetup {
  const RecommenderOptions& options;
  const RecommenderInputs& inputs;
  RecommenderOutput output;
};

// Each adds its layers to a model that has the batch inputs.
void add_dlrm(Sequential& model, const RecommenderSetup& setup);
void add_dcn(Sequential& model, const RecommenderSetup& setup);
void add_deep_wide(Sequential& model, const RecommenderSetup& setup);

/// Hidden layers `prefix`0, `prefix`1, ... from `input` on, each writes "x"; returns the last width.
std::int64_t add_hidden(Sequential& model, const RecommenderSetup& setup, const std::string& prefix,
                        const std::vector<std::int64_t>& widths, bool batch_norm, std::int64_t in,
                        std::string input);

/// The hidden layers of options.top, read from `input`.
std::int64_t add_top(Sequential& model, const RecommenderSetup& setup, std::int64_t in,
                     const std::string& input = "x");

/// From "x", and "wide" if there is such a value, to the score, and to the loss.
void add_head(Sequential& model, const RecommenderSetup& setup, std::int64_t in, bool wide = false);

/// One or two inputs [B, ...] side by side.
void add_side_by_side(Sequential& model, const std::string& name,
                      const std::vector<std::string>& inputs, const std::string& output);

/// Weight [out, in] and bias [out] of a linear map from `in` elements, whose first values are uniform in
/// +-1 / sqrt(in), as those of torch.nn.Linear.
WeightSpec map_weight(std::string name, std::int64_t out, std::int64_t in);
WeightSpec map_bias(std::string name, std::int64_t out, std::int64_t in);

}  // namespace strata
