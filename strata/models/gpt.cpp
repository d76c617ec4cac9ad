// Written as for one device, except that weights state how tensor-parallel ranks divide them, and
// products state which border of a split region they are at.
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>

#include "strata/models/decoder_layer.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/embedding.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

// C width, n tensor-parallel ranks.

class GptEmbedding final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::string signature() const override {
    return sizes("gpt.embedding",
                 {options_.vocab, options_.context, options_.width, options_.dropout > 0});
  }

  std::vector<WeightSpec> weights() const override {
    WeightSpec positions =
        matrix_spec("positions.weight", options_.context, options_.width, kWeightStddev);
    positions.hidden_matrix = false;
    return with_partial_gradients({token_matrix("tokens.weight"), std::move(positions)});
  }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {embedded(inputs[0])};
  }

  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute) const override {
    const std::int64_t numel = inputs[0].numel() * options_.width;
    const std::int64_t whole = bytes_of(numel), own = whole / parts();
    const std::int64_t dropped = dropped_bytes(own, inputs[0].shape[0]);
    const std::int64_t positions = split_.context.ranks > 1 ? own / inputs[0].shape[0] : 0;
    return {.saved = 0,
            .forward_transient = std::max({dropped, positions, whole + sum_bytes(whole) - own}),
            .backward_transient = dropped + gathered_bytes(whole),
            .kept = own,
            .input_transient = 0};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const auto [tokens, positions] = named<2>(weights);
    const at::Tensor x =
        embedding(inputs[0], tokens, context.cache ? packed(positions, *context.cache) : positions,
                  context.tensor, context.context_parallel);
    return {dropout(x, {options_.dropout, 0}, context)};
  }

  bool recomputable() const override { return false; }
  LayerWork work(std::span<const TensorSpec> inputs) const override {
    return {.forward_sum_bytes = summed_stream_bytes(embedded(inputs[0]))};
  }
  double forward_flops(std::span<const TensorSpec>) const override { return 0; }

 private:
  // The positions of every sequence's tokens, packed like the sample.
  static at::Tensor packed(const at::Tensor& positions, const LayerCache& cache) {
    std::vector<at::Tensor> parts;
    for (const SequenceTokens& tokens : cache.pass)
      parts.push_back(positions.narrow(0, tokens.position, tokens.count));
    return at::cat(parts);
  }
};

// x += attention(norm(x)); x += mlp(norm(x))
class GptBlock final : public DecoderLayer {
 public:
  using DecoderLayer::DecoderLayer;

  std::string signature() const override {
    return sizes("gpt.block", {options_.width, options_.heads, options_.dropout > 0}) +
           pattern_signature();
  }

  std::vector<WeightSpec> weights() const override {
    const std::int64_t c = options_.width;
    const WeightSplit rows{.axis = 0}, columns{.axis = 1};
    const WeightSplit heads{.axis = 0, .sections = {c, c, c}, .unit = c / options_.heads};
    // A block has two residual additions, whose variances add up over the depth.
    const double residual = kWeightStddev / std::sqrt(2.0 * static_cast<double>(options_.layers));
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

  // `own`: bytes of C numbers per row that the rank has between split regions; `whole`: for all
  // rows.
  //
  // Saved inside split regions, per row: 3C (packed projections), C (attention output), 4C (input
  // of the GELU). Saved between them: C (middle of the residual stream) and the statistics of two
  // norms and of the attention; with `keep` also both norms' outputs (2C) and the GELU's (4C).
  // Forward peaks in the MLP: at the GELU's output in addition to everything saved, or at the sum
  // after a product. Backward peaks there too: at the gradient of the GELU's input and its
  // recomputed output, or at the sum at the norm. In 16 bit, products need more bytes. Without a
  // graph, memory holds the middle of the stream, the GELU's input and output, and the next
  // product. Kept for the weights: both operands of each of the four products, 3C and C, C and C,
  // 4C and C, C and 4C, of which the first input is the layer's, and the norms' statistics.
  //
  // At the levels after kCheap the projections and the GELU's input (7C), then also the attention's
  // output and statistics, are not saved, so they add to the peaks at which they are in memory. A
  // divided backward frees the GELU's input early.
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute recompute) const override {
    const bool keep = recompute == Recompute::kNone;
    const std::int64_t rows = inputs[0].numel() / options_.width,
                       own = bytes_of(rows * options_.width);
    const std::int64_t n = split_.ranks, whole = own * parts(), share = whole / n;
    const std::int64_t norms = 4 * rows * 4, attention = rows * parts() * options_.heads / n * 4;
    const std::int64_t again = recompute >= Recompute::kProducts ? 4 * share : 0;  // GELU's input
    const std::int64_t unsaved = again * 7 / 4 + (drops_attention(recompute) ? share : 0);
    const std::int64_t statistics = norms + (drops_attention(recompute) ? 0 : attention);
    const std::int64_t dropped = dropped_bytes(own, inputs[0].shape[0]);
    const std::int64_t summed = whole + sum_bytes(whole);
    const ContextBytes others = context_bytes(rows * parts());
    const std::int64_t saved = (keep ? 12 : 8) * share + (keep ? 3 : 1) * own + statistics -
                               unsaved + saved_context_bytes(others, recompute);
    const std::int64_t all = rows * parts(), c = options_.width, inside = 4 * c / n;
    const std::int64_t product = product_bytes(all, inside, c);
    const std::int64_t weight = weight_gradient_bytes(all, inside, c);
    const std::int64_t forward =
        std::max({again + (keep ? 0 : 4 * share) + whole - own + product, own, dropped,
                  again + summed - own, others.forward + attention - saved - own});
    // In a ring or an exchange backward may peak in the attention, when the MLP's bytes are freed.
    const std::int64_t exchanging = others.backward == 0 ? 0
                                                         : unsaved + 4 * share + others.backward +
                                                               gathered_bytes(whole) -
                                                               (keep ? 8 * share + own : 4 * share);
    const std::int64_t backward =
        std::max({again + 4 * share + gathered_bytes(whole) + dropped + product,
                  again + (keep ? 0 : 8) * share + gathered_bytes(whole) + dropped + weight,
                  again + summed, exchanging}) -
        own;
    return {.saved = saved,
            .forward_transient = forward,
            .backward_transient = backward,
            .no_grad_transient = std::max({8 * share + whole + product, 4 * share + summed,
                                           others.forward + attention - own}),
            .kept = 12 * share + 2 * whole + (keep ? 3 : 1) * own + norms,
            .input_transient = (keep ? 7 : 11) * share + whole + own + 2 * dropped + unsaved -
                               again + others.first_half,
            .weight_transient = weight};
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const auto [norm1_gain, norm1_bias, qkv, qkv_bias, out, out_bias, norm2_gain, norm2_bias, up,
                up_bias, down, down_bias] = named<12>(weights);
    const Norm norm1{norm1_gain, norm1_bias}, norm2{norm2_gain, norm2_bias};
    const Attention attention{
        .head_width = options_.head_width, .pattern = pattern(), .sample = options_.context};
    // Temporaries are freed after their last use: a variable would keep them until the end.
    const at::Tensor x = residual_dropout(
        inputs[0],
        self_attention(inputs[0], norm1, {qkv, qkv_bias}, attention, {out, out_bias}, context),
        {options_.dropout, 0}, context);
    return {residual_dropout(x,
                             feed_forward(x, norm2, {up, up_bias}, Activation::kGelu,
                                          {down, down_bias}, context.recompute, context.tensor),
                             {options_.dropout, 1}, context)};
  }

  std::vector<TensorSpec> cache(std::int64_t pages, std::int64_t page_tokens) const override {
    return key_value_cache(pages, options_.heads / split_.ranks, page_tokens, options_.head_width,
                           precision_);
  }

  LayerWork work(std::span<const TensorSpec> inputs) const override {
    return block_work(inputs[0]);
  }

  Recompute deepest_recompute() const override { return Recompute::kAttention; }
  RepeatedWork repeated_work(std::span<const TensorSpec> inputs,
                             Recompute recompute) const override {
    return repeated_block_work(inputs[0], recompute, 7.0 * static_cast<double>(options_.width));
  }

  double forward_flops(std::span<const TensorSpec> inputs) const override {
    const double rows = static_cast<double>(inputs[0].numel() / options_.width * parts());
    const double width = static_cast<double>(options_.width);
    return rows * 24 * width * width / split_.ranks + attention_flops(inputs[0]);
  }
};

}  // namespace

DecoderParts gpt_parts(const DecoderSetup& setup) {
  return {.embedding = std::make_shared<GptEmbedding>(setup),
          .block = std::make_shared<GptBlock>(setup),
          .norm = HeadNorm::kLayerNorm};
}

}  // namespace strata
