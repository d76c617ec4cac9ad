// The last layer of every decoder: final norm and projection to the vocabulary, as loss or as
// logits. Only the norm differs between architectures.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "strata/models/decoder_layer.h"
#include "strata/nn/ops/head_loss.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

// [B, ceil(classes / n)] logits of each rank's slice -> [B, classes] on every rank.
at::Tensor gather_classes(const TensorParallel* group, const at::Tensor& logits,
                          std::int64_t classes) {
  if (!group) return logits;
  const std::int64_t slice = logits.size(1);
  at::Tensor all = at::zeros({logits.size(0), slice * group->size()}, logits.options());
  all.narrow(1, slice * group->rank(), slice).copy_(logits);
  group->all_reduce_sum(all);
  return all.narrow(1, 0, classes).contiguous();
}

// [B, T, C] -> [rows, C]: the last token of each sample or, in a decoding pass, the tokens that
// need logits.
at::Tensor last_tokens(const at::Tensor& x, const LayerCache* cache) {
  if (!cache) return x.select(1, x.size(1) - 1).contiguous();
  std::vector<at::Tensor> last;
  for (const SequenceTokens& tokens : cache->pass)
    last.push_back(x[0].narrow(0, tokens.first + tokens.count - tokens.logits, tokens.logits));
  return at::cat(last);
}

class Merge final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;
  std::string signature() const override { return sizes("gpt.merge", {}); }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }
  LayerBytes bytes(std::span<const TensorSpec>, Recompute) const override { return {}; }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    return {residual_add(inputs[0], inputs[1])};
  }
  bool recomputable() const override { return false; }
  double forward_flops(std::span<const TensorSpec>) const override { return 0; }
};

class Head : public DecoderLayer {
 public:
  Head(const DecoderSetup& setup, HeadNorm norm) : DecoderLayer(setup), norm_(norm) {}

  std::vector<WeightSpec> weights() const override {
    std::vector<WeightSpec> specs = {vector_spec("norm.weight", options_.width, Init::Kind::kOnes)};
    if (norm_ == HeadNorm::kLayerNorm)
      specs.push_back(vector_spec("norm.bias", options_.width, Init::Kind::kZeros));
    specs.push_back(token_matrix("weight"));
    return with_partial_gradients(std::move(specs));
  }
  bool recomputable() const override { return false; }

 protected:
  at::Tensor normed(const at::Tensor& x, std::span<const at::Tensor> weights) const {
    Norm norm{.epsilon = options_.norm_epsilon};
    if (norm_ == HeadNorm::kRmsNorm) {
      std::tie(norm.gain) = named<1>(weights);
    } else {
      std::tie(norm.gain, norm.bias) = named<2>(weights);
    }
    return normalise(x, norm);
  }
  static const at::Tensor& projection(std::span<const at::Tensor> weights) {
    return weights.back();
  }
  std::string kind(const std::string& output) const {
    return name_of(options_.kind) + ("." + output);
  }

  HeadNorm norm_;
};

class LossHead final : public Head {
 public:
  using Head::Head;
  std::string signature() const override {
    return sizes(kind("loss"), {options_.vocab, options_.width});
  }
  bool is_loss() const override { return true; }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override {
    return {{.shape = {}}};
  }

  // Backward holds the logits of a chunk and three numbers per row, then the gradient at the norm's
  // output twice; if split, also the gathered input and the whole gradient, then its sum. Without a
  // graph, memory holds the logits of a chunk and the norm's output.
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute) const override {
    const std::int64_t rows = inputs[0].numel() / options_.width, own = inputs[0].bytes();
    const std::int64_t whole = own * parts(), chunk = logit_bytes(rows * parts());
    const std::int64_t entered = gathered_bytes(whole) + whole - own;
    const std::int64_t statistics = rows * (norm_ == HeadNorm::kLayerNorm ? 2 : 1) * 4;
    return {.saved = own + statistics,
            .backward_transient = std::max(entered + std::max(chunk, sum_bytes(whole)), own),
            .no_grad_transient = own + gathered_bytes(whole) + chunk};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    return {head_loss(normed(inputs[0], weights), projection(weights), inputs[1], options_.vocab,
                      context)};
  }

  LayerWork work(std::span<const TensorSpec> inputs) const override {
    return {.backward_sum_bytes = summed_stream_bytes(inputs[0])};
  }

  // The forward is deferred: its GEMM runs in the backward.
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].numel() * parts() * columns());
  }
};

class LogitsHead final : public Head {
 public:
  using Head::Head;
  std::string signature() const override {
    return sizes(kind("logits"), {options_.vocab, options_.width});
  }

  // The logits, and the states that they are products of.
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    const std::int64_t rows = inputs[0].shape[0];
    return {{.shape = {rows, options_.vocab}},
            {.shape = {rows, options_.width}, .dtype = inputs[0].dtype}};
  }
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute) const override {
    return {.saved = inputs[0].bytes()};
  }
  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor last = last_tokens(enter_forward(context.tensor, inputs[0]), context.cache);
    const at::Tensor states = normed(last, weights);
    const at::Tensor logits = primitives(last).products.logits(states, projection(weights));
    return {gather_classes(context.tensor, logits, options_.vocab), states};
  }
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].shape[0] * options_.width * columns());
  }
};

}  // namespace

std::shared_ptr<const Layer> merge_layer(const DecoderSetup& setup) {
  return std::make_shared<Merge>(setup);
}

std::shared_ptr<const Layer> loss_head(const DecoderSetup& setup, HeadNorm norm) {
  return std::make_shared<LossHead>(setup, norm);
}

std::shared_ptr<const Layer> logits_head(const DecoderSetup& setup, HeadNorm norm) {
  return std::make_shared<LogitsHead>(setup, norm);
}

}  // namespace strata
