#include "strata/models/gpt.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>

#include <cmath>

#include "strata/base/errors.h"
#include "strata/model/ops/attention.h"
#include "strata/model/ops/dropout.h"
#include "strata/model/ops/embedding.h"
#include "strata/model/ops/head_loss.h"
#include "strata/model/ops/layer_norm.h"
#include "strata/model/ops/linear.h"

namespace strata {
namespace {

// R rows = B T, C width, V vocabulary, H heads.

constexpr double kStddev = 0.02;
constexpr const char* kTokenTie = "tokens";

WeightSpec matrix(std::string name, std::int64_t out, std::int64_t in, double stddev) {
  return {.name = std::move(name),
          .shape = {out, in},
          .init = {Init::Kind::kNormal, stddev},
          .decay = true};
}

WeightSpec vector(std::string name, std::int64_t size, Init::Kind kind) {
  return {.name = std::move(name), .shape = {size}, .init = {kind}};
}

std::string sizes(const char* kind, std::initializer_list<std::int64_t> numbers) {
  std::string text = kind;
  for (const std::int64_t number : numbers) text += " " + std::to_string(number);
  return text;
}

class Embedding final : public Layer {
 public:
  explicit Embedding(const GptOptions& options) : o_(options) {}

  std::string signature() const override {
    return sizes("gpt.embedding", {o_.vocab, o_.context, o_.width, o_.dropout > 0});
  }

  std::vector<WeightSpec> weights() const override {
    WeightSpec tokens = matrix("tokens.weight", o_.vocab, o_.width, kStddev);
    if (o_.tie) tokens.tie = kTokenTie;
    return {tokens, matrix("positions.weight", o_.context, o_.width, kStddev)};
  }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    const std::vector<std::int64_t>& shape = inputs[0].shape;
    if (shape[1] > o_.context) {
      throw UserError({.operation = "models.gpt",
                       .where = "embedding",
                       .what = "more tokens than positions",
                       .expected = "at most " + std::to_string(o_.context),
                       .got = std::to_string(shape[1]),
                       .fix = "raise model.context"});
    }
    return {{.shape = {shape[0], shape[1], o_.width}}};
  }

  LayerBytes bytes(std::span<const TensorSpec> inputs, bool) const override {
    const std::int64_t out = inputs[0].numel() * o_.width * 4;
    const std::int64_t dropped = o_.dropout > 0 ? out : 0;
    return {.saved = 0, .forward_transient = dropped, .backward_transient = dropped};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor x = embedding(inputs[0], weights[0], weights[1]);
    return {dropout(x, {o_.dropout, 0}, context)};
  }

  bool recomputable() const override { return false; }
  double forward_flops(std::span<const TensorSpec>) const override { return 0; }

 private:
  GptOptions o_;
};

// x += attention(norm(x)); x += mlp(norm(x))
class Block final : public Layer {
 public:
  explicit Block(const GptOptions& options) : o_(options) {}

  std::string signature() const override {
    return sizes("gpt.block", {o_.width, o_.heads, o_.dropout > 0});
  }

  std::vector<WeightSpec> weights() const override {
    const std::int64_t c = o_.width;
    // Two residual additions a block: their variances add up over the depth.
    const double residual = kStddev / std::sqrt(2.0 * static_cast<double>(o_.layers));
    return {vector("norm1.weight", c, Init::Kind::kOnes),
            vector("norm1.bias", c, Init::Kind::kZeros),
            matrix("attention.qkv.weight", 3 * c, c, kStddev),
            vector("attention.qkv.bias", 3 * c, Init::Kind::kZeros),
            matrix("attention.out.weight", c, c, residual),
            vector("attention.out.bias", c, Init::Kind::kZeros),
            vector("norm2.weight", c, Init::Kind::kOnes),
            vector("norm2.bias", c, Init::Kind::kZeros),
            matrix("mlp.up.weight", 4 * c, c, kStddev),
            vector("mlp.up.bias", 4 * c, Init::Kind::kZeros),
            matrix("mlp.down.weight", c, 4 * c, residual),
            vector("mlp.down.bias", c, Init::Kind::kZeros)};
  }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }

  // Saved: 3C (packed projections), C (attention output), C (middle of the residual stream), 4C
  // (input of the GELU) a row, statistics of two norms and of the attention; with `keep` also both
  // norms' outputs (2C) and the GELU's (4C). Forward peaks in the MLP: the GELU's output beside all
  // that is saved. Backward peaks there too: the gradient at the GELU's input and its output again.
  LayerBytes bytes(std::span<const TensorSpec> inputs, bool keep) const override {
    const std::int64_t rows = inputs[0].numel() / o_.width, rc = rows * o_.width * 4;
    const std::int64_t statistics = rows * (4 + o_.heads) * 4;
    const std::int64_t dropped = o_.dropout > 0 ? rc : 0;
    return {.saved = (keep ? 15 : 9) * rc + statistics,
            .forward_transient = (keep ? 1 : 4) * rc,
            .backward_transient = (keep ? 3 : 7) * rc + dropped};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    const bool keep = context.keep_intermediates;
    at::Tensor x = norm_linear(inputs[0], w[0], w[1], w[2], w[3], keep);
    x = linear(causal_attention(x, o_.heads), w[4], w[5]);
    x = residual_dropout(inputs[0], x, {o_.dropout, 0}, context);
    // Temporaries die as soon as they are read: a name would keep their bytes to the end.
    return {residual_dropout(
        x, gelu_linear(norm_linear(x, w[6], w[7], w[8], w[9], keep), w[10], w[11], keep),
        {o_.dropout, 1}, context)};
  }

  double forward_flops(std::span<const TensorSpec> inputs) const override {
    const double rows = static_cast<double>(inputs[0].numel() / o_.width);
    const double width = static_cast<double>(o_.width);
    const double length = static_cast<double>(inputs[0].shape[1]);
    return rows * (24 * width * width + 2 * length * width);  // causal: half of 4 T C
  }

 private:
  GptOptions o_;
};

// Adds the output of an early layer to the stream: a skip that may cross stages.
class Merge final : public Layer {
 public:
  std::string signature() const override { return "gpt.merge"; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }
  LayerBytes bytes(std::span<const TensorSpec>, bool) const override { return {}; }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    return {at::add(inputs[0], inputs[1])};
  }
  bool recomputable() const override { return false; }
  double forward_flops(std::span<const TensorSpec>) const override { return 0; }
};

// Final norm and projection to the vocabulary, as loss or as logits of the last position.
class Head : public Layer {
 public:
  explicit Head(const GptOptions& options) : o_(options) {}

  std::vector<WeightSpec> weights() const override {
    WeightSpec projection = matrix("weight", o_.vocab, o_.width, kStddev);
    if (o_.tie) projection.tie = kTokenTie;
    return {vector("norm.weight", o_.width, Init::Kind::kOnes),
            vector("norm.bias", o_.width, Init::Kind::kZeros), projection};
  }
  bool recomputable() const override { return false; }

 protected:
  GptOptions o_;
};

class LossHead final : public Head {
 public:
  using Head::Head;
  std::string signature() const override { return sizes("gpt.loss", {o_.vocab, o_.width}); }
  bool is_loss() const override { return true; }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override {
    return {{.shape = {}}};
  }

  LayerBytes bytes(std::span<const TensorSpec> inputs, bool) const override {
    const std::int64_t rows = inputs[0].numel() / o_.width, rc = rows * o_.width * 4;
    const std::int64_t chunk = std::min(rows, kHeadChunkRows) * (o_.vocab + 1) * 4;
    return {.saved = rc + 2 * rows * 4,
            .forward_transient = 0,
            .backward_transient = std::max(chunk, rc)};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    return {head_loss(layer_norm(inputs[0], w[0], w[1]), w[2], inputs[1], context)};
  }

  // The forward is deferred: its GEMM runs in the backward.
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].numel() * o_.vocab);
  }
};

class LogitsHead final : public Head {
 public:
  using Head::Head;
  std::string signature() const override { return sizes("gpt.logits", {o_.vocab, o_.width}); }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {{.shape = {inputs[0].shape[0], o_.vocab}}};
  }
  LayerBytes bytes(std::span<const TensorSpec> inputs, bool) const override {
    return {.saved = inputs[0].bytes()};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor last = inputs[0].select(1, inputs[0].size(1) - 1).contiguous();
    return {at::mm(layer_norm(last, w[0], w[1]), w[2].t())};
  }
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].shape[0] * o_.width * o_.vocab);
  }
};

}  // namespace

Sequence make_gpt(const GptOptions& options, GptOutput output) {
  if (options.heads < 1 || options.width % options.heads != 0) {
    throw UserError({.operation = "models.gpt",
                     .what = "the width does not divide among the heads",
                     .expected = "model.width a multiple of model.heads",
                     .got = std::to_string(options.width) + " / " + std::to_string(options.heads),
                     .fix = "set model.heads to a divisor of " + std::to_string(options.width)});
  }
  const bool loss = output == GptOutput::kLoss;
  Sequence model(loss ? std::vector<std::string>{"tokens", "targets"}
                      : std::vector<std::string>{"tokens"});
  model.add("embed", std::make_shared<Embedding>(options), {"tokens"},
            {options.skip ? "early" : "x"});
  const auto block = std::make_shared<Block>(options);
  for (std::int64_t i = 0; i < options.layers; ++i)
    model.add("block" + std::to_string(i), block, {i == 0 && options.skip ? "early" : "x"});
  if (options.skip) model.add("merge", std::make_shared<Merge>(), {"x", "early"});
  if (loss) {
    model.add("head", std::make_shared<LossHead>(options), {"x", "targets"}, {"loss"});
  } else {
    model.add("head", std::make_shared<LogitsHead>(options), {"x"}, {"logits"});
  }
  return model;
}

}  // namespace strata
