/// Describes a layer: what weights it has and a function of (weights, inputs). It owns no memory.
///
/// The bytes of its weights live in a store (tier/), one flat buffer a layer, and are leased while
/// an action needs them. A layer is immutable and shared by all ranks and micro-batches.
///
/// Shapes   inputs and outputs carry the samples of one micro-batch in dimension 0.
/// Threads  all methods const and callable from any thread.
/// Errors   UserError from outputs() on inputs that don't fit; forward() assumes they do.
/// Example  examples/04_own_layer.cpp: weights(), outputs() and forward() are enough.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "strata/layout/costs.h"

namespace strata {

struct StepScalars;
class TensorParallel;

/// How a weight gets its first values: drawn by counter, keyed by (seed, layer, weight, element).
struct Init {
  enum class Kind : std::uint8_t { kZeros, kOnes, kNormal, kUniform } kind = Kind::kZeros;
  double scale = 0;  ///< kNormal: standard deviation; kUniform: of (-scale, scale)
};

/// How tensor-parallel ranks divide a weight (layout.h); they all hold the whole otherwise.
struct WeightSplit {
  int axis = -1;  ///< -1: not divided
  /// Packed parts along the axis, each divided; empty: one.
  std::vector<std::int64_t> sections = {};
  std::int64_t unit = 1;  ///< smallest piece along the axis: a head's width
};

/// Which number of its columns' samples a weight follows.
enum class Statistic : std::uint8_t { kNone, kMean, kVariance };

struct WeightSpec {
  std::string name;                 ///< within its layer: "attention.qkv.weight"
  std::vector<std::int64_t> shape;  ///< of the whole weight
  Init init;
  bool decay = false;    ///< weight decay applies (matrices; not biases and norms)
  std::string tie = "";  ///< same non-empty tie = same weight; the first layer owns it
  WeightSplit split = {};
  /// With sequence parallelism a rank's gradient of this undivided weight comes from its part of
  /// the sequence alone: the ranks' are added before the update.
  bool partial_gradient = false;
  /// Of a running statistic, which neither the optimizer nor the norm sees: a step moves it by the share
  /// `momentum` towards that of the whole mini-batch. A variance stands behind the mean of its columns.
  Statistic statistic = Statistic::kNone;
  double momentum = 0;
};

/// What the leaf of a weight has in place of a gradient when a step begins: zeros in the weight's shape; with a
/// running mean the moments (moments.h) of no sample, to which a layer adds those of its micro-batches; with a
/// running variance nothing.
at::Tensor first_gradient(const WeightSpec& spec, const at::TensorOptions& options);

/// A tensor that isn't there yet.
struct TensorSpec {
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::int64_t numel() const;
  std::int64_t bytes() const;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// Bytes of one forward and backward, as LayerCost (layout/costs.h) defines them.
struct LayerBytes {
  std::int64_t saved = 0;
  std::int64_t forward_transient = 0;
  std::int64_t backward_transient = 0;
  std::optional<std::int64_t> no_grad_transient = std::nullopt;

  /// Of a forward that keeps no graph: no more than one that does, unless the layer says how much.
  std::int64_t without_graph() const {
    return no_grad_transient.value_or(saved + forward_transient);
  }
};

/// A loss of nothing yet, fp64 [1]; `like` says where.
at::Tensor zero_loss(const at::TensorOptions& options = {});

/// Where a loss layer reports: sums over the tokens of a micro-batch, added in micro-batch order. They
/// stay on the device until somebody reads them, so that a step need not wait for it.
struct LossSink {
  at::Tensor sum = zero_loss();  ///< of token losses, fp64 [1], on the device of the layer's inputs
  /// Outside of training, to which layers that score samples append their scores, [B] fp32 each; null:
  /// nobody asks.
  std::vector<at::Tensor>* scores = nullptr;

  double value() const;  ///< of the sum; waits for the device
};

/// The tokens of one sequence in a decoding pass. A pass packs the tokens of its sequences one
/// after another into one sample, [1, T].
struct SequenceTokens {
  int sequence = 0;           ///< index into dim 0 of the cache's tensors
  std::int64_t position = 0;  ///< in the sequence, of the first of these tokens
  std::int64_t first = 0;     ///< in the sample, of the first of these tokens
  std::int64_t count = 0;     ///< at least 1
};

/// What decoding keeps of earlier tokens, for example keys and values.
struct LayerCache {
  /// as Layer::cache() describes them; forward() adds the new tokens in place
  std::vector<at::Tensor> tensors;
  std::vector<SequenceTokens> pass;  ///< the sample's tokens, in order
};

/// What forward may know beside its inputs.
struct ForwardContext {
  bool training = false;  ///< dropout on; loss layers defer to backward
  /// recompute: none. Otherwise GELU and norms run again in backward.
  bool keep_intermediates = false;
  std::uint64_t seed = 0;  ///< of the run
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  ///< position of the micro-batch in the global mini-batch, samples
  int layer = 0;                  ///< global index
  double loss_scale = 1;          ///< 1 / valid tokens of the whole step
  LossSink* loss = nullptr;
  double label_smoothing = 0;              ///< share of the loss spread over the whole vocabulary
  const TensorParallel* tensor = nullptr;  ///< null: this rank does the layer's work alone
  const LayerCache* cache = nullptr;       ///< decoding; null: the inputs are whole samples
  /// Of the rank's device, in its memory: a recorded step's kernels read the step and, for
  /// `loss_scale`, loss_scale * inverse_valid_tokens there, for they run again in later steps. Null on a CPU,
  /// where this context is made anew.
  const StepScalars* scalars = nullptr;
};

/// The first N weights of a layer, to be named where they are used:
///     const auto [gain, bias] = named<2>(weights);
template <std::size_t N>
auto named(std::span<const at::Tensor> weights) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::tie(weights[i]...);
  }(std::make_index_sequence<N>());
}

class Layer {
 public:
  virtual ~Layer() = default;

  virtual std::vector<WeightSpec> weights() const = 0;
  virtual std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const = 0;

  /// `weights` are autograd leaves in the order of weights(), each with its gradient preset, as
  /// first_gradient(), to a view of the flat gradient where it is one. In grad mode the outputs carry a graph of this layer alone.
  virtual std::vector<at::Tensor> forward(const ForwardContext& context,
                                          std::span<const at::Tensor> weights,
                                          std::span<const at::Tensor> inputs) const = 0;

  /// False: running forward again would save nothing (embeddings, losses).
  virtual bool recomputable() const { return !is_loss(); }
  /// True: the last layer of a trained model; its output is the loss of the micro-batch.
  virtual bool is_loss() const { return false; }

  /// Kind and sizes; layers with equal signatures cost the same and are probed once. By default the
  /// type and the shapes of the weights: a layer whose cost depends on more says it here.
  virtual std::string signature() const;

  /// Bytes of one forward and backward of these inputs. By default they are measured, which runs
  /// the layer once (measured_bytes.h): a model whose plan must not allocate states them.
  virtual LayerBytes bytes(std::span<const TensorSpec> inputs, bool keep_intermediates) const;

  /// Floating-point operations of one forward, matrix products only. By default one product of
  /// every row of the first input with every matrix among the weights.
  virtual double forward_flops(std::span<const TensorSpec> inputs) const;

  /// What the planner counts beside bytes and products, of these inputs on one rank.
  virtual LayerWork work(std::span<const TensorSpec> inputs) const;

  /// What it keeps on one rank while `sequences` texts of at most `positions` tokens are decoded.
  /// By default nothing: every output depends on the input at its own position alone.
  /// Shapes  [sequences, ...] each
  virtual std::vector<TensorSpec> cache(std::int64_t sequences, std::int64_t positions) const;
};

}  // namespace strata
