// Written as for one device, except that weights state how tensor-parallel ranks divide them, and
// products state which border of a split region they are at.
#include <algorithm>
#include <cmath>

#include "strata/models/decoder_layer.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/embedding.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

// R rows = B T, C width, F width inside the MLP, V vocabulary, n tensor-parallel ranks.

class LlamaEmbedding final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::string signature() const override {
    return sizes("llama.embedding", {options_.vocab, options_.width});
  }

  std::vector<WeightSpec> weights() const override { return {token_matrix("tokens.weight")}; }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {embedded(inputs[0])};
  }

  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute) const override {
    const std::int64_t whole = bytes_of(inputs[0].numel() * options_.width);
    return {.saved = 0,
            .forward_transient = whole + sum_bytes(whole) - whole / parts(),
            .backward_transient = gathered_bytes(whole),
            .kept = whole / parts(),
            .input_transient = 0};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const auto [tokens] = named<1>(weights);
    return {token_embedding(inputs[0], tokens, context.tensor)};
  }

  bool recomputable() const override { return false; }
  LayerWork work(std::span<const TensorSpec> inputs) const override {
    return {.forward_sum_bytes = summed_stream_bytes(embedded(inputs[0]))};
  }
  double forward_flops(std::span<const TensorSpec>) const override { return 0; }
};

// x += attention(norm(x)); x += mlp(norm(x))
class LlamaBlock final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::string signature() const override {
    return sizes("llama.block",
                 {options_.width, options_.heads, options_.kv_heads, options_.head_width,
                  options_.mlp_width, options_.qkv_bias, options_.qk_norm}) +
           pattern_signature();
  }

  std::vector<WeightSpec> weights() const override {
    const std::int64_t c = options_.width, f = options_.mlp_width, d = options_.head_width;
    const std::int64_t q = options_.heads * d, kv = options_.kv_heads * d;
    const WeightSplit heads{.axis = 0, .sections = {q, kv, kv}, .unit = d};
    // A block has two residual additions, whose variances add up over the depth.
    const double residual = kWeightStddev / std::sqrt(2.0 * static_cast<double>(options_.layers));
    std::vector<WeightSpec> specs = {
        vector_spec("norm1.weight", c, Init::Kind::kOnes),
        matrix_spec("attention.qkv.weight", q + 2 * kv, c, kWeightStddev, heads),
        matrix_spec("attention.out.weight", c, q, residual, {.axis = 1, .unit = d}),
        vector_spec("norm2.weight", c, Init::Kind::kOnes),
        matrix_spec("mlp.gate_up.weight", 2 * f, c, kWeightStddev, {.axis = 0, .sections = {f, f}}),
        matrix_spec("mlp.down.weight", c, f, residual, {.axis = 1})};
    if (options_.qkv_bias)
      specs.push_back(vector_spec("attention.qkv.bias", q + 2 * kv, Init::Kind::kZeros, heads));
    if (options_.qk_norm) {
      specs.push_back(vector_spec("attention.query_norm.weight", d, Init::Kind::kOnes));
      specs.push_back(vector_spec("attention.key_norm.weight", d, Init::Kind::kOnes));
    }
    return with_partial_gradients(specs);
  }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }

  // `own`: bytes of C numbers per row that the rank has between split regions; `whole`: for all
  // rows. The others: a rank's projections, attention output and inside of the MLP.
  //
  // Saved: packed projections, attention output, gate and up, the middle of the residual stream,
  // statistics; with `keep` also both norms' outputs and the SwiGLU's. Forward peaks in the MLP: at
  // the SwiGLU's output, the norm's, the sum after a product, or the residual addition. Backward
  // peaks at the SwiGLU (the gradient of its inputs and its recomputed output), then at the norm,
  // or, with a small MLP, in the attention, whose gradients are packed after the MLP's bytes are
  // freed. In 16 bit, products need more bytes. Without a graph, memory holds the middle of the
  // stream, the SwiGLU's inputs and output, and the next product; or the attention's. Kept for the
  // weights: both operands of each product, of which the first input is the layer's, and the norms'
  // statistics.
  //
  // At the levels after kCheap the projections, gate and up, then also the attention's output and
  // statistics, are not saved, so they add to the peaks at which they are in memory. A divided
  // backward frees gate and up early.
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute recompute) const override {
    const bool keep = recompute == Recompute::kNone;
    const std::int64_t own = inputs[0].bytes(), whole = own * parts();
    const std::int64_t rows = inputs[0].numel() / options_.width * parts(), n = split_.ranks;
    const std::int64_t out = bytes_of(rows * options_.heads * options_.head_width / n);
    const std::int64_t packed =
        bytes_of(rows * (options_.heads + 2 * options_.kv_heads) * options_.head_width / n);
    const std::int64_t inside_width = (options_.mlp_width + n - 1) / n;
    const std::int64_t inside = bytes_of(rows * inside_width);
    const std::int64_t c = options_.width, up = product_bytes(rows, c, 2 * inside_width);
    const std::int64_t down = product_bytes(rows, inside_width, c);
    const std::int64_t down_weight = weight_gradient_bytes(rows, inside_width, c);
    const std::int64_t up_weight = weight_gradient_bytes(rows, c, 2 * inside_width);
    const std::int64_t norms = options_.qk_norm ? options_.heads + options_.kv_heads : 0;
    const bool drops = drops_attention(recompute);
    const std::int64_t again = recompute >= Recompute::kProducts ? 2 * inside : 0;
    const std::int64_t unsaved = (again > 0 ? again + packed : 0) + (drops ? out : 0);
    const std::int64_t statistics =
        (2 * rows / parts() + rows * ((drops ? 0 : options_.heads) + norms) / n) * 4;
    const std::int64_t entered = gathered_bytes(whole), summed = whole + sum_bytes(whole);
    const std::int64_t forward = std::max({again + (keep ? 0 : inside) + whole - own + down,
                                           again + (keep ? 0 : own) + entered + up - own,
                                           (keep ? 0 : own) + entered, again + summed - own, own});
    const std::int64_t freed = keep ? 3 * inside + own : 2 * inside;
    // In addition, the gradients of one sample, or of a quarter of the heads, before they are
    // packed.
    const ContextBytes others = context_bytes(rows);
    const std::int64_t piece =
        std::max(packed / std::max<std::int64_t>(4, inputs[0].shape[0]), others.backward);
    const std::int64_t attention =
        out + (options_.qk_norm ? 4 * packed + others.backward : packed + piece) + entered - freed;
    const std::int64_t backward =
        std::max({again + 3 * inside + entered + (keep ? 0 : down_weight),
                  again + entered + down_weight, again + inside + down,
                  again + 2 * inside + entered + std::max(up, up_weight) - freed + own,
                  again + 2 * inside + summed - freed + own, unsaved + attention, summed}) -
        own;
    const std::int64_t saved = packed + out + 2 * inside + own + (keep ? 2 * own + inside : 0) +
                               statistics - unsaved + saved_context_bytes(others, recompute);
    const std::int64_t log_sums = rows * options_.heads / n * 4;
    return {.saved = saved,
            .forward_transient = std::max(forward, others.forward + log_sums - saved - own),
            .backward_transient = std::max<std::int64_t>(backward, n > 1 ? own : 0),
            .no_grad_transient =
                std::max({3 * inside + whole + down, 2 * inside + summed,
                          own + entered + 2 * inside + up, entered + packed, packed + out - own,
                          out + summed - own, others.forward + log_sums - own}),
            .kept = packed + out + 3 * inside + 2 * whole + (keep ? 3 : 1) * own +
                    2 * rows / parts() * 4,
            .input_transient =
                unsaved - again + (keep ? 2 : 3) * inside +
                std::max(packed + whole + own, options_.qk_norm ? 4 * packed + entered : 0) +
                others.first_half,
            .weight_transient = std::max(up_weight, down_weight)};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const auto [norm1, qkv, out, norm2, gate_up, down] = named<kEveryKind>(weights);
    // Temporaries are freed after their last use: a variable would keep them until the end.
    const at::Tensor x =
        residual_add(inputs[0], self_attention(inputs[0], norm(norm1), {qkv, qkv_bias(weights)},
                                               attention(weights), {out}, context));
    return {residual_add(x, feed_forward(x, norm(norm2), {gate_up}, Activation::kSwiglu, {down},
                                         context.recompute, context.tensor))};
  }

  std::vector<TensorSpec> cache(std::int64_t pages, std::int64_t page_tokens) const override {
    return key_value_cache(pages, options_.kv_heads / split_.ranks, page_tokens,
                           options_.head_width, precision_);
  }

  LayerWork work(std::span<const TensorSpec> inputs) const override {
    return block_work(inputs[0]);
  }

  Recompute deepest_recompute() const override { return Recompute::kAttention; }
  RepeatedWork repeated_work(std::span<const TensorSpec> inputs,
                             Recompute recompute) const override {
    const std::int64_t heads = (options_.heads + 2 * options_.kv_heads) * options_.head_width;
    return repeated_block_work(inputs[0], recompute,
                               static_cast<double>(heads + 2 * options_.mlp_width));
  }

  double forward_flops(std::span<const TensorSpec> inputs) const override {
    const auto rows = static_cast<double>(inputs[0].numel() / options_.width * parts());
    const auto out = static_cast<double>(options_.heads * options_.head_width);
    const auto kv = static_cast<double>(options_.kv_heads * options_.head_width);
    const auto weights = static_cast<double>(options_.width) *
                         (2 * out + 2 * kv + 3 * static_cast<double>(options_.mlp_width));
    return rows * 2 * weights / split_.ranks + attention_flops(inputs[0]);
  }

 private:
  static constexpr std::size_t kEveryKind = 6;  // weights; those of Qwen 2 or Qwen 3 follow

  Norm norm(const at::Tensor& gain) const {
    return {.gain = gain, .epsilon = options_.norm_epsilon};
  }

  at::Tensor qkv_bias(std::span<const at::Tensor> weights) const {
    if (!options_.qkv_bias) return {};
    const auto [bias] = named<1>(weights.subspan(kEveryKind));
    return bias;
  }

  Attention attention(std::span<const at::Tensor> weights) const {
    Attention attention{.head_width = options_.head_width,
                        .queries_per_key = options_.heads / options_.kv_heads,
                        .rope = options_.rope,
                        .norm_epsilon = options_.norm_epsilon,
                        .pattern = pattern(),
                        .sample = options_.context};
    if (options_.qk_norm)
      std::tie(attention.query_gain, attention.key_gain) = named<2>(weights.subspan(kEveryKind));
    return attention;
  }
};

}  // namespace

DecoderParts llama_parts(const DecoderSetup& setup) {
  return {.embedding = std::make_shared<LlamaEmbedding>(setup),
          .block = std::make_shared<LlamaBlock>(setup),
          .norm = HeadNorm::kRmsNorm};
}

}  // namespace strata
