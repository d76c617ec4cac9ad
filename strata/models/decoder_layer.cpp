// Bytes are formulas, because a plan must not allocate; bytes_test.cpp and precision_bytes_test.cpp
// compare them with what the layers allocate.
#include "strata/models/decoder_layer.h"

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/models/attention_options.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/ops/head_loss.h"

namespace strata {

WeightSpec matrix_spec(std::string name, std::int64_t out, std::int64_t in, double stddev,
                       WeightSplit split) {
  return {.name = std::move(name),
          .shape = {out, in},
          .init = {Init::Kind::kNormal, stddev},
          .decay = true,
          .hidden_matrix = true,
          .split = std::move(split)};
}

WeightSpec vector_spec(std::string name, std::int64_t size, Init::Kind kind, WeightSplit split) {
  return {.name = std::move(name), .shape = {size}, .init = {kind}, .split = std::move(split)};
}

std::string DecoderLayer::sizes(const std::string& kind,
                                std::initializer_list<std::int64_t> numbers) const {
  std::string text = kind;
  for (const std::int64_t number : numbers) text += " " + std::to_string(number);
  if (split_.ranks > 1) text += " tp " + std::to_string(split_.ranks);
  if (split_.sequence) text += " sequence";
  const ContextSplit& context = split_.context;
  if (context.ranks > 1)
    text += " cp " + std::to_string(context.ranks) + " " + name_of(context.exchange);
  if (context.in_blocks()) text += " block " + std::to_string(context.block);
  return precision_ == at::kFloat ? text : text + " " + c10::toString(precision_);
}

std::string DecoderLayer::pattern_signature() const {
  return pattern() ? " " + pattern_text(*pattern()) : "";
}

WeightSpec DecoderLayer::token_matrix(const std::string& name) const {
  WeightSpec spec = matrix_spec(name, options_.vocab, options_.width, kWeightStddev, {.axis = 0});
  spec.hidden_matrix = false;
  if (options_.tie) spec.tie = kTokenTie;
  return spec;
}

TensorSpec DecoderLayer::embedded(const TensorSpec& tokens) const {
  const std::int64_t samples = tokens.shape[0], length = tokens.shape[1];
  const std::int64_t ranks = split_.context.ranks;
  const std::int64_t unit = split_.context.unit(parts()) / ranks;
  if (length * ranks > options_.context || length % unit != 0) {
    throw UserError({.operation = std::string("models.") + name_of(options_.kind),
                     .where = "embedding",
                     .what = "samples of a length that the model doesn't take",
                     .expected = "a multiple of " + std::to_string(unit * ranks) + ", at most " +
                                 std::to_string(options_.context) + " tokens",
                     .got = std::to_string(length * ranks),
                     .fix = "raise model.context, or take other samples"});
  }
  return {.shape = {samples, length / parts(), options_.width}, .dtype = precision_};
}

std::vector<WeightSpec> DecoderLayer::with_partial_gradients(std::vector<WeightSpec> specs) const {
  for (WeightSpec& spec : specs) spec.partial_gradient = split_.sequence && spec.split.axis < 0;
  return specs;
}

// Counted in nn/ops and nn/cuda, of micro-batches of more than 256 rows and without dropout.
// Forward: 2 norms, 4 products, attention, activation, 2 additions. Backward: 4 products for inputs
// and 4 for weights, 2 for each of 4 biases, the activation, 2 norms again, 4 for the gradients of
// each, attention 4, 3 copies of its gradients, 2 additions.
LayerWork DecoderLayer::block_work(const TensorSpec& stream) const {
  LayerWork work{.forward_kernels = 10,
                 .backward_kernels = 36,
                 .forward_sum_bytes = 2 * summed_stream_bytes(stream),
                 .backward_sum_bytes = 2 * summed_stream_bytes(stream)};
  const ContextSent sent = context_sent(stream);
  work.forward_context_bytes = sent.forward;
  work.backward_context_bytes = sent.backward;
  work.forward_context_messages = sent.forward_messages;
  work.backward_context_messages = sent.backward_messages;
  const std::int64_t tokens = stream.shape[1] * parts();
  add_block_kernels(work, tokens);
  if (precision_ != at::kFloat && !pattern())
    work.attention = attention_shape(stream.shape[0], tokens);
  return work;
}

double DecoderLayer::attention_flops(const TensorSpec& stream) const {
  const auto rows = static_cast<double>(stream.numel() / options_.width * parts());
  const std::int64_t length = length_of(stream);
  const double share = pattern() ? pattern()->work(length).share : 1;
  return share * rows * 2 * static_cast<double>(length * options_.heads * options_.head_width) /
         split_.ranks;
}

// Two norms and two products. With sequence parallelism each rank gathers the sequence twice, which
// takes as long as one sum.
RepeatedWork DecoderLayer::repeated_block_work(const TensorSpec& stream, Recompute recompute,
                                               double columns) const {
  if (recompute < Recompute::kProducts) return {};
  const auto numel = static_cast<double>(stream.numel() * parts());
  RepeatedWork work{.flops = 2 * numel * columns / split_.ranks,
                    .kernels = 4,
                    .sum_bytes = split_.sequence ? summed_stream_bytes(stream) : 0};
  const ContextSent sent = context_sent(stream);
  if (!drops_attention(recompute)) {
    // The operands of attention.
    if (split_.context.exchange == ContextExchange::kRing || options_.qk_norm) return work;
    work.context_bytes = sent.forward * operand_share();
    work.context_messages = sent.forward_messages / 2;
    return work;
  }
  work.context_bytes = sent.forward;
  work.context_messages = sent.forward_messages;
  work.flops += attention_flops(stream);
  work.kernels += 1 + pattern_tiles(length_of(stream)) * kKernelsOfTile;
  return work;
}

std::int64_t DecoderLayer::sum_bytes(std::int64_t whole) const {
  if (split_.ranks == 1) return 0;
  return whole / split_.ranks + (split_.sequence ? whole : 0);
}

std::int64_t DecoderLayer::bytes_of(std::int64_t numel) const {
  return numel * static_cast<std::int64_t>(c10::elementSize(precision_));
}

std::int64_t DecoderLayer::product_bytes(std::int64_t rows, std::int64_t in,
                                         std::int64_t out) const {
  return device_ == DeviceKind::kCpu ? host_product_bytes(precision_, rows, in, out) : 0;
}

std::int64_t DecoderLayer::weight_gradient_bytes(std::int64_t rows, std::int64_t in,
                                                 std::int64_t out) const {
  return device_ == DeviceKind::kCpu ? host_weight_gradient_bytes(precision_, rows, in, out) : 0;
}

std::int64_t DecoderLayer::logit_bytes(std::int64_t rows) const {
  const std::int64_t chunk = std::min(rows, head_chunk_rows(device_));
  const std::int64_t logits = chunk * columns();
  if (device_ != DeviceKind::kCpu) {
    // Losses in fp64; among tensor-parallel ranks also two maxima and three sums per row.
    const std::int64_t row = 8 + (split_.ranks > 1 ? 5 * 4 : 0);
    return bytes_of(logits) + row * chunk;
  }
  const std::int64_t width = options_.width, fp32 = (logits + 3 * chunk) * 4;
  if (precision_ == at::kFloat) return fp32;
  if (widens_products(precision_)) {
    // The logits themselves are fp32, so the product makes no fp32 copy of its result.
    return logits * 4 + product_bytes(chunk, width, columns()) - product_bytes(chunk, 0, columns());
  }
  return bytes_of(logits) + std::max(fp32, weight_gradient_bytes(chunk, width, columns()));
}

}  // namespace strata
