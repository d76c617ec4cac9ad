#include "strata/models/gpt.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/models/decoder_layer.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/dropout.h"
#include "strata/nn/ops/embedding.h"
#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/head_loss.h"
#include "strata/nn/ops/layer_norm.h"
#include "strata/nn/ops/linear.h"

namespace strata {
namespace {

// C width, n tensor-parallel ranks.

class Embedding final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::string signature() const override {
    return sizes("gpt.embedding", {o_.vocab, o_.context, o_.width, o_.dropout > 0});
  }

  std::vector<WeightSpec> weights() const override {
    WeightSpec tokens =
        matrix_spec("tokens.weight", o_.vocab, o_.width, kWeightStddev, {.axis = 0});
    if (o_.tie) tokens.tie = kTokenTie;
    return with_partial_gradients(
        {tokens, matrix_spec("positions.weight", o_.context, o_.width, kWeightStddev)});
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
    if (shape[1] % parts() != 0) {
      throw UserError({.operation = "models.gpt",
                       .where = "embedding",
                       .what = "the sequence does not divide among the tensor-parallel ranks",
                       .expected = "a multiple of " + std::to_string(parts()) + " tokens",
                       .got = std::to_string(shape[1]),
                       .fix = "take longer or shorter samples"});
    }
    return {{.shape = {shape[0], shape[1] / parts(), o_.width}, .dtype = precision_}};
  }

  LayerBytes bytes(std::span<const TensorSpec> inputs, bool) const override {
    const std::int64_t numel = inputs[0].numel() * o_.width;
    const std::int64_t whole = bytes_of(numel), own = whole / parts();
    const std::int64_t dropped = o_.dropout > 0 ? own : 0;
    // In 16 bit the rank's positions are converted as a whole.
    const std::int64_t positions =
        precision_ == at::kFloat ? 0 : inputs[0].shape[1] / parts() * o_.width * 4;
    return {.saved = 0,
            .forward_transient = std::max({dropped + piece_bytes(2, numel / parts()),
                                           piece_bytes(2, numel / parts()) + positions,
                                           whole + sum_bytes(whole) - own}),
            .backward_transient =
                dropped + gathered_bytes(whole) + piece_bytes(dropped > 0 ? 2 : 1, numel)};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor x = embedding(inputs[0], weights[0], weights[1], context.tensor);
    return {dropout(x, {o_.dropout, 0}, context)};
  }

  bool recomputable() const override { return false; }
  double forward_flops(std::span<const TensorSpec>) const override { return 0; }
};

// x += attention(norm(x)); x += mlp(norm(x))
class Block final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::string signature() const override {
    return sizes("gpt.block", {o_.width, o_.heads, o_.dropout > 0});
  }

  std::vector<WeightSpec> weights() const override {
    const std::int64_t c = o_.width;
    const WeightSplit rows{.axis = 0}, columns{.axis = 1};
    const WeightSplit heads{.axis = 0, .sections = {c, c, c}, .unit = c / o_.heads};
    // Two residual additions a block: their variances add up over the depth.
    const double residual = kWeightStddev / std::sqrt(2.0 * static_cast<double>(o_.layers));
    return with_partial_gradients(
        {vector_spec("norm1.weight", c, Init::Kind::kOnes),
         vector_spec("norm1.bias", c, Init::Kind::kZeros),
         matrix_spec("attention.qkv.weight", 3 * c, c, kWeightStddev, heads),
         vector_spec("attention.qkv.bias", 3 * c, Init::Kind::kZeros, heads),
         matrix_spec("attention.out.weight", c, c, residual, columns),
         vector_spec("attention.out.bias", c, Init::Kind::kZeros),
         vector_spec("norm2.weight", c, Init::Kind::kOnes),
         vector_spec("norm2.bias", c, Init::Kind::kZeros),
         matrix_spec("mlp.up.weight", 4 * c, c, kWeightStddev, rows),
         vector_spec("mlp.up.bias", 4 * c, Init::Kind::kZeros, rows),
         matrix_spec("mlp.down.weight", c, 4 * c, residual, columns),
         vector_spec("mlp.down.bias", c, Init::Kind::kZeros)});
  }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }

  // `own`: C numbers for each row that the rank has between split regions; `whole`: for all rows.
  //
  // Saved inside split regions: 3C (packed projections), C (attention output), 4C (input of the
  // GELU) a row; between them C (middle of the residual stream), statistics of two norms and of the
  // attention; with `keep` also both norms' outputs (2C) and the GELU's (4C). Forward peaks in the
  // MLP: the GELU's output beside all that is saved, or the sum behind a product. Backward peaks
  // there too: the gradient at the GELU's input and its output again, or the sum at the norm. In 16
  // bit, pieces in fp32 and weight gradients on their way to the fp32 ones come on top.
  LayerBytes bytes(std::span<const TensorSpec> inputs, bool keep) const override {
    const std::int64_t rows = inputs[0].numel() / o_.width, own = bytes_of(rows * o_.width);
    const std::int64_t n = split_.ranks, whole = own * parts(), share = whole / n;
    const std::int64_t statistics = (4 * rows + rows * parts() * o_.heads / n) * 4;
    const std::int64_t dropped = o_.dropout > 0 ? own : 0, summed = whole + sum_bytes(whole);
    const std::int64_t inside = 4 * rows * parts() * o_.width / n;  // elements at the GELU
    const std::int64_t weight = product_bytes(4 * o_.width * o_.width / n);
    const std::int64_t forward = std::max(
        {keep ? 0 : 4 * share + whole - own, (keep ? 0 : 4 * share) + piece_bytes(2, inside) - own,
         own + (dropped > 0 ? piece_bytes(3, rows * o_.width) : 0), summed - own});
    const std::int64_t backward =
        std::max((keep ? 4 : 8) * share + gathered_bytes(whole) + dropped +
                     std::max(piece_bytes(keep ? 3 : 4, inside), weight),
                 summed) -
        own;
    return {.saved = (keep ? 12 : 8) * share + (keep ? 3 : 1) * own + statistics,
            .forward_transient = forward,
            .backward_transient = backward};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    const bool keep = context.keep_intermediates;
    const ColumnParallel columns{context.tensor};
    const RowParallel rows{context.tensor};
    at::Tensor x = norm_linear(inputs[0], w[0], w[1], w[2], w[3], keep, columns);
    x = linear(causal_attention(x, o_.heads / split_.ranks), w[4], w[5], rows);
    x = residual_dropout(inputs[0], x, {o_.dropout, 0}, context);
    // Temporaries die as soon as they are read: a name would keep their bytes to the end.
    return {residual_dropout(x,
                             gelu_linear(norm_linear(x, w[6], w[7], w[8], w[9], keep, columns),
                                         w[10], w[11], keep, rows),
                             {o_.dropout, 1}, context)};
  }

  double forward_flops(std::span<const TensorSpec> inputs) const override {
    const double rows = static_cast<double>(inputs[0].numel() / o_.width * parts());
    const double width = static_cast<double>(o_.width);
    const double length = static_cast<double>(inputs[0].shape[1] * parts());
    // causal: half of 4 T C
    return rows * (24 * width * width + 2 * length * width) / split_.ranks;
  }
};

// Adds the output of an early layer to the stream: a skip that may cross stages.
class Merge final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;
  std::string signature() const override { return sizes("gpt.merge", {}); }
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
class Head : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::vector<WeightSpec> weights() const override {
    WeightSpec projection = matrix_spec("weight", o_.vocab, o_.width, kWeightStddev, {.axis = 0});
    if (o_.tie) projection.tie = kTokenTie;
    return with_partial_gradients({vector_spec("norm.weight", o_.width, Init::Kind::kOnes),
                                   vector_spec("norm.bias", o_.width, Init::Kind::kZeros),
                                   projection});
  }
  bool recomputable() const override { return false; }
};

class LossHead final : public Head {
 public:
  using Head::Head;
  std::string signature() const override { return sizes("gpt.loss", {o_.vocab, o_.width}); }
  bool is_loss() const override { return true; }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override {
    return {{.shape = {}}};
  }

  // Backward holds the logits of a chunk and three numbers a row of it, then the gradient at the
  // norm's output twice; split, also the gathered input and the whole gradient, then its sum.
  LayerBytes bytes(std::span<const TensorSpec> inputs, bool) const override {
    const std::int64_t rows = inputs[0].numel() / o_.width, own = bytes_of(rows * o_.width);
    const std::int64_t whole = own * parts(), chunk = logit_bytes(rows * parts());
    const std::int64_t entered = gathered_bytes(whole) + whole - own;
    return {.saved = own + 2 * rows * 4,
            .forward_transient = piece_bytes(2, rows * o_.width),
            .backward_transient = std::max(entered + std::max(chunk, sum_bytes(whole)),
                                           own + piece_bytes(3, rows * o_.width))};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    return {head_loss(layer_norm(inputs[0], w[0], w[1]), w[2], inputs[1], o_.vocab, context)};
  }

  // The forward is deferred: its GEMM runs in the backward.
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].numel() * parts() * columns());
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
  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor> w,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor x = enter_forward(context.tensor, inputs[0]);
    const at::Tensor last = x.select(1, x.size(1) - 1).contiguous();
    const at::Tensor logits = at::mm(layer_norm(last, w[0], w[1]), w[2].t());
    return {gather_classes(context.tensor, in_fp32(logits), o_.vocab)};
  }
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].shape[0] * o_.width * columns());
  }
};

// Refuses what the ranks could not divide evenly; the vocabulary may: its slices are padded.
void check_split(const GptOptions& options, TensorSplit split) {
  // The heads divide the width, so their divisors divide the MLP's width too.
  const std::int64_t legal =
      split.sequence ? std::gcd(options.heads, options.context) : options.heads;
  check_divides("the heads", options.heads, legal, split.ranks);
  if (split.sequence)
    check_divides("the positions of the context", options.context, legal, split.ranks);
  if (split.sequence && options.dropout > 0 && options.width % 4 != 0) {
    throw UserError({.operation = "models.gpt",
                     .where = "mesh.sequence_parallel",
                     .what = "dropout on a part of the sequence",
                     .expected = "model.width a multiple of 4",
                     .got = std::to_string(options.width),
                     .fix = "set mesh.sequence_parallel to false"});
  }
}

}  // namespace

Sequence make_gpt(const GptOptions& options, GptOutput output, TensorSplit split,
                  at::ScalarType precision) {
  if (options.heads < 1 || options.width % options.heads != 0) {
    throw UserError({.operation = "models.gpt",
                     .what = "the width does not divide among the heads",
                     .expected = "model.width a multiple of model.heads",
                     .got = std::to_string(options.width) + " / " + std::to_string(options.heads),
                     .fix = "set model.heads to a divisor of " + std::to_string(options.width)});
  }
  split.sequence = split.sequence && split.ranks > 1;
  check_split(options, split);
  const bool loss = output == GptOutput::kLoss;
  Sequence model(
      loss ? std::vector<std::string>{"tokens", "targets"} : std::vector<std::string>{"tokens"},
      split);
  model.add("embed", std::make_shared<Embedding>(options, split, precision), {"tokens"},
            {options.skip ? "early" : "x"});
  const auto block = std::make_shared<Block>(options, split, precision);
  for (std::int64_t i = 0; i < options.layers; ++i)
    model.add("block" + std::to_string(i), block, {i == 0 && options.skip ? "early" : "x"});
  if (options.skip)
    model.add("merge", std::make_shared<Merge>(options, split, precision), {"x", "early"});
  if (loss) {
    model.add("head", std::make_shared<LossHead>(options, split, precision), {"x", "targets"},
              {"loss"});
  } else {
    model.add("head", std::make_shared<LogitsHead>(options, split, precision), {"x"}, {"logits"});
  }
  return model;
}

}  // namespace strata
