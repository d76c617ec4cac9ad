/// Describes a layer: its weights and a function of (weights, inputs). It owns no memory.
///
/// A store (tier/) holds the bytes of its weights, one flat buffer per layer, and pins them while
/// an action needs them. A layer is immutable and shared by all ranks and micro-batches.
///
/// Shapes   inputs and outputs carry the samples of one micro-batch in dimension 0.
/// Threads  all methods const and callable from any thread.
/// Errors   UserError from outputs() on inputs that don't fit; forward() assumes they do
///          and does not write its inputs, which ranks may share.
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
#include "strata/layout/recompute.h"

namespace strata {

struct StepScalars;
class ContextParallel;
class TensorParallel;

/// The initial values of a weight: drawn by counter, keyed by (seed, layer, weight, element).
struct Init {
  enum class Kind : std::uint8_t { kZeros, kOnes, kNormal, kUniform } kind = Kind::kZeros;
  double scale = 0;  ///< kNormal: standard deviation; kUniform: of (-scale, scale)
};

/// How tensor-parallel ranks divide a weight (layout.h); an undivided weight is whole on every
/// rank.
struct WeightSplit {
  int axis = -1;  ///< -1: not divided
  /// Packed parts along the axis, each divided separately; empty: one part.
  std::vector<std::int64_t> sections = {};
  std::int64_t unit = 1;  ///< smallest piece along the axis: a head's width
};

/// The statistic of its columns that a weight follows.
enum class Statistic : std::uint8_t { kNone, kMean, kVariance };

struct WeightSpec {
  std::string name;                 ///< within its layer: "attention.qkv.weight"
  std::vector<std::int64_t> shape;  ///< of the whole weight
  Init init;
  bool decay = false;  ///< weight decay applies (matrices; not biases and norms)
  /// A matrix between hidden units, not one that embeds or scores: Muon updates it whole. Such a
  /// weight has decay and no tie.
  bool hidden_matrix = false;
  std::string tie = "";  ///< same non-empty tie = same weight; the first layer owns it
  WeightSplit split = {};
  /// With sequence parallelism a rank's gradient of this undivided weight covers only its part of
  /// the sequence: the ranks' gradients are added before the update.
  bool partial_gradient = false;
  /// For a running statistic, which the optimizer and the norm ignore: each step moves it towards
  /// that of the whole mini-batch by the factor `momentum`. A variance follows the mean of its
  /// columns.
  Statistic statistic = Statistic::kNone;
  double momentum = 0;
};

/// Returns the initial gradient of a weight's leaf in a step: zeros in the weight's shape; for a
/// running mean the moments (moments.h) of no samples, to which the layer adds those of its
/// micro-batches; for a running variance nothing.
at::Tensor first_gradient(const WeightSpec& spec, const at::TensorOptions& options);

/// Shape and type of a tensor that is not allocated yet.
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
  std::int64_t kept = 0;  ///< 0 for a layer whose backward the first half does
  std::optional<std::int64_t> input_transient = std::nullopt;   ///< of the first half
  std::optional<std::int64_t> weight_transient = std::nullopt;  ///< of the second half

  /// Unless the layer states less, a half needs as much as a whole backward, and the first one also
  /// makes what it keeps.
  std::int64_t first_half() const { return input_transient.value_or(backward_transient + kept); }
  std::int64_t second_half() const {
    return weight_transient.value_or(kept > 0 ? backward_transient : 0);
  }

  /// In a forward without a graph: as much as with one, unless the layer states less.
  std::int64_t without_graph() const {
    return no_grad_transient.value_or(saved + forward_transient);
  }
};

/// The part of a forward that backward does again, on one rank.
struct RepeatedWork {
  double flops = 0;            ///< matrix products and attention
  int kernels = 0;             ///< that a device launches
  std::int64_t sum_bytes = 0;  ///< as LayerWork::backward_sum_bytes
  double context_bytes = 0;    ///< as LayerWork::backward_context_bytes
  int context_messages = 0;    ///< as LayerWork::backward_context_messages
};

/// Returns a zero loss, fp64 [1], on the device of `options`.
at::Tensor zero_loss(const at::TensorOptions& options = {});

/// Receives the loss of a loss layer: sums over the tokens of a micro-batch, added in micro-batch
/// order. They stay on the device until value() reads them, so that a step need not wait for it.
struct LossSink {
  at::Tensor sum = zero_loss();  ///< of token losses, fp64 [1], on the device of the layer's inputs
  /// Outside of training, layers that score samples append their scores here, [B] fp32 each; null:
  /// scores are not needed.
  std::vector<at::Tensor>* scores = nullptr;

  double value() const;  ///< of the sum; waits for the device
};

/// The tokens of one sequence in a decoding pass. A pass packs the tokens of its sequences one
/// after another into one sample, [1, T].
struct SequenceTokens {
  std::span<const std::int32_t> pages;  ///< of the sequence, indices into dim 0 of the cache
  std::int64_t position = 0;            ///< in the sequence, of the first of these tokens
  std::int64_t first = 0;               ///< in the sample, of the first of these tokens
  std::int64_t count = 0;               ///< at least 1
  std::int64_t logits = 0;              ///< how many of the last of these tokens need logits
};

/// What decoding keeps of earlier tokens, for example keys and values.
struct LayerCache {
  /// as Layer::cache() describes them; forward() adds the new tokens in place
  std::vector<at::Tensor> tensors;
  std::span<const SequenceTokens> pass;  ///< the sample's tokens, in order
};

/// Inputs of forward in addition to weights and tensors.
struct ForwardContext {
  bool training = false;                    ///< dropout on; loss layers defer to backward
  Recompute recompute = Recompute::kCheap;  ///< what backward computes again
  std::uint64_t seed = 0;                   ///< of the run
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  ///< position of the micro-batch in the global mini-batch, samples
  int layer = 0;                  ///< global index
  double loss_scale = 1;          ///< 1 / valid tokens of the whole step
  LossSink* loss = nullptr;
  double label_smoothing = 0;              ///< share of the loss spread over the whole vocabulary
  const TensorParallel* tensor = nullptr;  ///< null: this rank does the layer's work alone
  /// null: the inputs are all tokens of the samples, and attention is not cut into blocks
  const ContextParallel* context_parallel = nullptr;
  const LayerCache* cache = nullptr;  ///< decoding; null: the inputs are whole samples
  /// In the memory of the rank's device. The kernels of a recorded step run again in later steps,
  /// so they read the step from here and multiply `loss_scale` by inverse_valid_tokens. Null on a
  /// CPU, where each step makes a new context.
  const StepScalars* scalars = nullptr;
};

/// Names the first N weights of a layer:
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

  /// `weights` are autograd leaves in the order of weights(). Each gradient is preset as by
  /// first_gradient(): a view of the flat gradient if the weight has a part in it. In grad mode the
  /// outputs carry a graph of only this layer.
  virtual std::vector<at::Tensor> forward(const ForwardContext& context,
                                          std::span<const at::Tensor> weights,
                                          std::span<const at::Tensor> inputs) const = 0;

  /// False if running forward again would save no memory (embeddings, losses).
  virtual bool recomputable() const { return !is_loss(); }
  /// True for the last layer of a trained model, whose output is the loss of the micro-batch.
  virtual bool is_loss() const { return false; }

  /// True for a layer that computes by ATen's operators: forward and backward run with ATen's own
  /// threads, as many as the rank has.
  virtual bool uses_aten_threads() const { return false; }

  /// True for a layer that needs the lock of a Python interpreter: ranks of one process wait for
  /// each other in such layers.
  virtual bool runs_python() const { return false; }

  /// Kind and sizes; layers with equal signatures cost the same and are probed once. By default the
  /// type and the shapes of the weights: a layer whose cost depends on more adds it.
  virtual std::string signature() const;

  /// Bytes of one forward and backward with these inputs. By default they are measured, which runs
  /// the layer once (measured_bytes.h): a model whose plan must not allocate overrides this.
  virtual LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute recompute) const;

  /// The deepest level at which backward computes more again than at the level before.
  virtual Recompute deepest_recompute() const { return Recompute::kCheap; }

  /// What backward computes again at the levels after kCheap.
  virtual RepeatedWork repeated_work(std::span<const TensorSpec> inputs, Recompute recompute) const;

  /// Floating-point operations of one forward, matrix products only. By default one product of
  /// every row of the first input with every matrix among the weights.
  virtual double forward_flops(std::span<const TensorSpec> inputs) const;

  /// What the planner counts in addition to bytes and products, for these inputs on one rank.
  virtual LayerWork work(std::span<const TensorSpec> inputs) const;

  /// The cache of one rank that decodes: `pages`, each for `page_tokens` tokens of a sequence. By
  /// default nothing: every output depends only on the input at its own position.
  /// Shapes  [pages, ...] each
  virtual std::vector<TensorSpec> cache(std::int64_t pages, std::int64_t page_tokens) const;
};

}  // namespace strata
