#include "strata/models/llama.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/models/decoder_layer.h"
#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/grouped_attention.h"
#include "strata/nn/ops/head_loss.h"
#include "strata/nn/ops/rms_norm.h"
#include "strata/nn/ops/row_linear.h"
#include "strata/nn/ops/token_embedding.h"

namespace strata {
namespace {

// R rows = B T, C width, F width inside the MLP, V vocabulary, n tensor-parallel ranks.

class Embedding final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::string signature() const override { return sizes("llama.embedding", {o_.vocab, o_.width}); }

  std::vector<WeightSpec> weights() const override {
    WeightSpec tokens =
        matrix_spec("tokens.weight", o_.vocab, o_.width, kWeightStddev, {.axis = 0});
    if (o_.tie) tokens.tie = kTokenTie;
    return {tokens};
  }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    const std::vector<std::int64_t>& shape = inputs[0].shape;
    if (shape[1] > o_.context || shape[1] % parts() != 0) {
      const std::string part = std::to_string(parts());
      throw UserError({.operation = "models.llama",
                       .where = "embedding",
                       .what = "samples of a length that the model doesn't take",
                       .expected = "a multiple of " + part + ", at most " +
                                   std::to_string(o_.context) + " tokens",
                       .got = std::to_string(shape[1]),
                       .fix = "raise model.context, or take other samples"});
    }
    return {{.shape = {shape[0], shape[1] / parts(), o_.width}, .dtype = precision_}};
  }

  LayerBytes bytes(std::span<const TensorSpec> inputs, bool) const override {
    const std::int64_t numel = inputs[0].numel() * o_.width, whole = bytes_of(numel);
    return {.saved = 0,
            .forward_transient = whole + sum_bytes(whole) - whole / parts(),
            .backward_transient = gathered_bytes(whole) + piece_bytes(1, numel)};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    return {token_embedding(inputs[0], w[0], context.tensor)};
  }

  bool recomputable() const override { return false; }
  double forward_flops(std::span<const TensorSpec>) const override { return 0; }
};

// x += attention(norm(x)); x += mlp(norm(x))
class Block final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::string signature() const override {
    return sizes("llama.block", {o_.width, o_.heads, o_.kv_heads, o_.head_width, o_.mlp_width,
                                 o_.qkv_bias, o_.qk_norm});
  }

  std::vector<WeightSpec> weights() const override {
    const std::int64_t c = o_.width, f = o_.mlp_width, d = o_.head_width;
    const std::int64_t q = o_.heads * d, kv = o_.kv_heads * d;
    const WeightSplit heads{.axis = 0, .sections = {q, kv, kv}, .unit = d};
    // Two residual additions a block: their variances add up over the depth.
    const double residual = kWeightStddev / std::sqrt(2.0 * static_cast<double>(o_.layers));
    std::vector<WeightSpec> specs = {
        vector_spec("norm1.weight", c, Init::Kind::kOnes),
        matrix_spec("attention.qkv.weight", q + 2 * kv, c, kWeightStddev, heads),
        matrix_spec("attention.out.weight", c, q, residual, {.axis = 1, .unit = d}),
        vector_spec("norm2.weight", c, Init::Kind::kOnes),
        matrix_spec("mlp.gate_up.weight", 2 * f, c, kWeightStddev, {.axis = 0, .sections = {f, f}}),
        matrix_spec("mlp.down.weight", c, f, residual, {.axis = 1})};
    if (o_.qkv_bias)
      specs.push_back(vector_spec("attention.qkv.bias", q + 2 * kv, Init::Kind::kZeros, heads));
    if (o_.qk_norm) {
      specs.push_back(vector_spec("attention.query_norm.weight", d, Init::Kind::kOnes));
      specs.push_back(vector_spec("attention.key_norm.weight", d, Init::Kind::kOnes));
    }
    return with_partial_gradients(specs);
  }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }

  // `own`: C numbers for each row that the rank has between split regions; `whole`: for all rows;
  // the others: what a rank has of the projections, the attention's output, the MLP's inside.
  //
  // Saved: packed projections, attention output, gate and up, the middle of the residual stream,
  // statistics; with `keep` also both norms' outputs and the SwiGLU's. Forward peaks in the MLP: at
  // the SwiGLU's output, the norm's, the sum behind a product, or the residual addition. Backward
  // peaks at the SwiGLU (the gradient at its inputs and its output again), behind it at the norm,
  // or, with a small MLP, in the attention, where the gradients are packed and MLP's part has gone.
  // In 16 bit, pieces in fp32 and weight gradients on their way to the fp32 ones come on top.
  LayerBytes bytes(std::span<const TensorSpec> inputs, bool keep) const override {
    const std::int64_t own = inputs[0].bytes(), whole = own * parts();
    const std::int64_t rows = inputs[0].numel() / o_.width * parts(), n = split_.ranks;
    const std::int64_t out = bytes_of(rows * o_.heads * o_.head_width / n);
    const std::int64_t packed = bytes_of(rows * (o_.heads + 2 * o_.kv_heads) * o_.head_width / n);
    const std::int64_t inside_width = (o_.mlp_width + n - 1) / n;
    const std::int64_t inside = bytes_of(rows * inside_width);
    const std::int64_t gate = piece_bytes(3, 2 * rows * inside_width);  // of its backward
    const std::int64_t norms = o_.qk_norm ? o_.heads + o_.kv_heads : 0;
    const std::int64_t statistics = (2 * rows / parts() + rows * (o_.heads + norms) / n) * 4;
    const std::int64_t entered = gathered_bytes(whole), summed = whole + sum_bytes(whole);
    const std::int64_t forward =
        std::max({(keep ? 0 : inside) + whole - own, (keep ? 0 : own) + entered,
                  (keep ? 0 : inside) + gate / 2 - own, summed - own, own});
    const std::int64_t freed = keep ? 3 * inside + own : 2 * inside;
    const std::int64_t attention = out + (o_.qk_norm ? 4 : 2) * packed + entered - freed;
    const std::int64_t extra = std::max(gate, product_bytes(2 * o_.width * inside_width));
    const std::int64_t backward = std::max({3 * inside + entered + extra,
                                            2 * inside + summed - freed + own, attention, summed}) -
                                  own;
    return {.saved = packed + out + 2 * inside + own + (keep ? 2 * own + inside : 0) + statistics,
            .forward_transient = forward,
            .backward_transient = std::max<std::int64_t>(backward, own)};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    const bool keep = context.keep_intermediates;
    const TensorParallel* group = context.tensor;
    const std::optional<at::Tensor> bias = o_.qkv_bias ? std::optional(w[6]) : std::nullopt;
    at::Tensor x = attend(
        rms_norm_linear(inputs[0], w[0], o_.norm_epsilon, w[1], bias, keep, group), w, group);
    x = at::add(inputs[0], row_linear(x, w[2], group));
    // Temporaries die as soon as they are read: a name would keep their bytes to the end.
    return {at::add(
        x, swiglu_linear(rms_norm_linear(x, w[3], o_.norm_epsilon, w[4], std::nullopt, keep, group),
                         w[5], keep, group))};
  }

  double forward_flops(std::span<const TensorSpec> inputs) const override {
    const auto rows = static_cast<double>(inputs[0].numel() / o_.width * parts());
    const auto length = static_cast<double>(inputs[0].shape[1] * parts());
    const auto out = static_cast<double>(o_.heads * o_.head_width);
    const auto kv = static_cast<double>(o_.kv_heads * o_.head_width);
    const auto weights =
        static_cast<double>(o_.width) * (2 * out + 2 * kv + 3 * static_cast<double>(o_.mlp_width));
    return rows * (2 * weights + 2 * length * out) / split_.ranks;  // causal: half of 4 T C
  }

 private:
  at::Tensor attend(const at::Tensor& qkv, std::span<const at::Tensor> w,
                    const TensorParallel* group) const {
    const GroupedAttention options{.queries_per_key = o_.heads / o_.kv_heads,
                                   .head_width = o_.head_width,
                                   .rope = o_.rope,
                                   .norm_epsilon = o_.norm_epsilon};
    if (!o_.qk_norm) return grouped_attention(qkv, options);
    return normed_grouped_attention(qkv, w[6], w[7], options, group);
  }
};

// Final norm and projection to the vocabulary, as loss or as logits of the last position.
class Head : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::vector<WeightSpec> weights() const override {
    WeightSpec projection = matrix_spec("weight", o_.vocab, o_.width, kWeightStddev, {.axis = 0});
    if (o_.tie) projection.tie = kTokenTie;
    return with_partial_gradients(
        {vector_spec("norm.weight", o_.width, Init::Kind::kOnes), projection});
  }
  bool recomputable() const override { return false; }
};

class LossHead final : public Head {
 public:
  using Head::Head;
  std::string signature() const override { return sizes("llama.loss", {o_.vocab, o_.width}); }
  bool is_loss() const override { return true; }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override {
    return {{.shape = {}}};
  }

  // Backward holds the logits of a chunk and three numbers a row of it, then the gradient at the
  // norm's output twice; split, also the gathered input and the whole gradient, then its sum.
  LayerBytes bytes(std::span<const TensorSpec> inputs, bool) const override {
    const std::int64_t rows = inputs[0].numel() / o_.width, own = inputs[0].bytes();
    const std::int64_t whole = own * parts(), chunk = logit_bytes(rows * parts());
    const std::int64_t entered = gathered_bytes(whole) + whole - own;
    return {.saved = own + rows * 4,
            .forward_transient = piece_bytes(2, rows * o_.width),
            .backward_transient = std::max(entered + std::max(chunk, sum_bytes(whole)),
                                           own + piece_bytes(3, rows * o_.width))};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    return {
        head_loss(rms_norm(inputs[0], w[0], o_.norm_epsilon), w[1], inputs[1], o_.vocab, context)};
  }

  // The forward is deferred: its GEMM runs in the backward.
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].numel() * parts() * columns());
  }
};

class LogitsHead final : public Head {
 public:
  using Head::Head;
  std::string signature() const override { return sizes("llama.logits", {o_.vocab, o_.width}); }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {{.shape = {inputs[0].shape[0], o_.vocab}}};
  }
  LayerBytes bytes(std::span<const TensorSpec> inputs, bool) const override {
    return {.saved = inputs[0].bytes()};
  }
  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor x = enter_forward(context.tensor, inputs[0]);
    const at::Tensor last = x.select(1, x.size(1) - 1).contiguous();
    const at::Tensor logits = at::mm(rms_norm(last, w[0], o_.norm_epsilon), w[1].t());
    return {gather_classes(context.tensor, in_fp32(logits), o_.vocab)};
  }
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].shape[0] * o_.width * columns());
  }
};

}  // namespace

Sequence make_llama(const GptOptions& given, GptOutput output, TensorSplit split,
                    at::ScalarType precision) {
  const GptOptions options = completed(given);
  split.sequence = split.sequence && split.ranks > 1;
  const std::int64_t legal =
      split.sequence ? std::gcd(options.kv_heads, options.context) : options.kv_heads;
  check_divides("the key and value heads", options.kv_heads, legal, split.ranks);
  if (split.sequence)
    check_divides("the positions of the context", options.context, legal, split.ranks);
  const bool loss = output == GptOutput::kLoss;
  Sequence model(
      loss ? std::vector<std::string>{"tokens", "targets"} : std::vector<std::string>{"tokens"},
      split);
  model.add("embed", std::make_shared<Embedding>(options, split, precision), {"tokens"}, {"x"});
  const auto block = std::make_shared<Block>(options, split, precision);
  for (std::int64_t i = 0; i < options.layers; ++i) model.add("block" + std::to_string(i), block);
  if (loss) {
    model.add("head", std::make_shared<LossHead>(options, split, precision), {"x", "targets"},
              {"loss"});
  } else {
    model.add("head", std::make_shared<LogitsHead>(options, split, precision), {"x"}, {"logits"});
  }
  return model;
}

}  // namespace strata
