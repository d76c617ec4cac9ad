/// Declares what the layers of all recommenders share, and adds the layers that they have in
/// common.
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

/// A product with a weight, optionally normalised over the micro-batch, then the activation.
struct HiddenUnit {
  std::int64_t in = 0, out = 0;
  bool batch_norm = false;
  HiddenActivation activation = HiddenActivation::kRelu;

  std::vector<WeightSpec> weights(const std::string& prefix = "") const;
  std::size_t num_weights() const { return batch_norm ? 6 : 2; }
  /// `weights` are those of weights().
  at::Tensor forward(const ForwardContext& context, std::span<const at::Tensor> weights,
                     const at::Tensor& x) const;
  std::string signature() const;
  /// Bytes saved for so many samples, without the input and the output.
  std::int64_t saved_bytes(std::int64_t samples) const;
};

/// The arguments of all makers of recommenders; `options` are completed().
struct RecommenderSetup {
  const RecommenderOptions& options;
  const RecommenderInputs& inputs;
  RecommenderOutput output;
};

// Each adds its layers to a model that already has the batch inputs.
void add_dlrm(Sequential& model, const RecommenderSetup& setup);
void add_dcn(Sequential& model, const RecommenderSetup& setup);
void add_deep_wide(Sequential& model, const RecommenderSetup& setup);

/// Adds hidden layers `prefix`0, `prefix`1, ... after `input`; each writes "x". Returns the last
/// width.
std::int64_t add_hidden(Sequential& model, const RecommenderSetup& setup, const std::string& prefix,
                        const std::vector<std::int64_t>& widths, bool batch_norm, std::int64_t in,
                        std::string input);

/// Adds the hidden layers of options.top after `input`.
std::int64_t add_top(Sequential& model, const RecommenderSetup& setup, std::int64_t in,
                     const std::string& input = "x");

/// Adds the layers from "x", and "wide" if it exists, to the score and the loss.
void add_head(Sequential& model, const RecommenderSetup& setup, std::int64_t in, bool wide = false);

/// Concatenates one or two inputs [B, ...].
void add_side_by_side(Sequential& model, const std::string& name,
                      const std::vector<std::string>& inputs, const std::string& output);

/// Weight [out, in] and bias [out] of a linear map from `in` elements, whose first values are
/// uniform in +-1 / sqrt(in), as those of torch.nn.Linear.
WeightSpec map_weight(std::string name, std::int64_t out, std::int64_t in);
WeightSpec map_bias(std::string name, std::int64_t out, std::int64_t in);

}  // namespace strata
