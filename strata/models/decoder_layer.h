/// Holds what the layers of all decoders share, and declares the makers of the parts from which
/// model.cpp composes a decoder: embedding, block and head.
///
/// Shapes  B samples of T tokens, width C: tokens and targets [B, T] int64, the stream [B, T, C] of
///         the precision, [B, T/n, C] on each of n ranks with sequence parallelism; loss and logits
///         fp32. Where ranks divide the samples (axis cp), T is the number of a rank's tokens.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "strata/comm/tensor_parallel.h"
#include "strata/device/device.h"
#include "strata/models/decoder_options.h"
#include "strata/nn/graph/layer.h"

namespace strata {

/// What a layer is made for; `options` are completed().
struct DecoderSetup {
  const DecoderOptions& options;
  TensorSplit split;
  at::ScalarType precision = at::kFloat;
  DeviceKind device = DeviceKind::kCpu;  ///< the device that bytes are stated for
};

inline constexpr double kWeightStddev = 0.02;
inline constexpr const char* kTokenTie = "tokens";

WeightSpec matrix_spec(std::string name, std::int64_t out, std::int64_t in, double stddev,
                       WeightSplit split = {});
WeightSpec vector_spec(std::string name, std::int64_t size, Init::Kind kind,
                       WeightSplit split = {});

class DecoderLayer : public Layer {
 public:
  explicit DecoderLayer(const DecoderSetup& setup)
      : options_(setup.options),
        split_(setup.split),
        precision_(setup.precision),
        device_(setup.device) {}

 protected:
  /// A signature: kind, sizes, split, precision.
  std::string sizes(const std::string& kind, std::initializer_list<std::int64_t> numbers) const;

  /// The part of a block's signature that states what its tokens attend to.
  std::string pattern_signature() const;

  /// Tokens of whole samples, for a rank's stream.
  std::int64_t length_of(const TensorSpec& stream) const {
    return stream.shape[1] * parts() * split_.context.ranks;
  }

  /// What its tokens attend to; null: all earlier ones.
  const AttentionPattern* pattern() const {
    return options_.attention.sparse() ? &options_.attention : nullptr;
  }

  /// The token embedding's weight; a tied head uses the same.
  WeightSpec token_matrix(const std::string& name) const;

  /// The residual stream after the embedding. Throws UserError for samples longer than the context.
  /// Shapes  [B, T] -> [B, T, C], or a rank's part of the sequence
  TensorSpec embedded(const TensorSpec& tokens) const;

  /// Marks the undivided weights that are used between split regions.
  std::vector<WeightSpec> with_partial_gradients(std::vector<WeightSpec> specs) const;

  /// The number of parts of the rank's tokens between split regions.
  std::int64_t parts() const { return split_.sequence ? split_.ranks : 1; }
  /// Columns of the vocabulary on one rank, padding included.
  std::int64_t columns() const { return (options_.vocab + split_.ranks - 1) / split_.ranks; }

  /// Bytes in addition to an activation of `whole` bytes: while ranks sum it; for its gathered
  /// copy.
  std::int64_t sum_bytes(std::int64_t whole) const;
  std::int64_t gathered_bytes(std::int64_t whole) const { return split_.sequence ? whole : 0; }

  /// Bytes of the whole stream, which tensor-parallel ranks sum; 0 on one rank.
  std::int64_t summed_stream_bytes(const TensorSpec& stream) const {
    return split_.ranks > 1 ? stream.bytes() * parts() : 0;
  }

  /// The work of a transformer block: two sums in each direction, and attention.
  /// Source  Narayanan et al. 2021 (SC'21), section 3.2: 8bsh(t-1)/t elements a block.
  LayerWork block_work(const TensorSpec& stream) const;

  /// Operations of a rank's attention for this stream. Causal: half of all pairs of tokens, of
  /// which the ranks of cp do equal shares; with a pattern those of its blocks.
  double attention_flops(const TensorSpec& stream) const;

  AttentionShape attention_shape(std::int64_t samples, std::int64_t tokens) const;
  /// Adds the kernels of an attention in blocks or with a pattern, for so many tokens of a rank.
  void add_block_kernels(LayerWork& work, std::int64_t tokens) const;
  /// Blocks of queries that a device without a fused kernel attends with one after another, of
  /// samples of so many tokens; 0 without a pattern. Their number is limited.
  int pattern_tiles(std::int64_t length) const;
  /// Kernels that such a device launches for a tile.
  static constexpr int kKernelsOfTile = 16, kBackwardKernelsOfTile = 28;
  /// Bytes of a tile's scores on a device without a fused kernel.
  std::int64_t score_bytes(std::int64_t samples, std::int64_t block) const;
  /// Groups of heads in the backward of a ring.
  std::int64_t head_groups() const;

  /// Bytes that a rank sends to others with a part of the same samples, on average.
  struct ContextSent {
    double forward = 0, backward = 0;
    int forward_messages = 0, backward_messages = 0;  ///< that wait for one another
  };
  ContextSent context_sent(const TensorSpec& stream) const;

  /// Bytes of attention with a pattern, in addition to operands, output and gradients.
  struct PatternBytes {
    std::int64_t forward = 0, backward = 0;
  };
  PatternBytes pattern_bytes(std::int64_t rows) const;

  /// Bytes of attention where ranks divide the samples, or it is made of blocks or has a pattern;
  /// otherwise zeros.
  struct ContextBytes {
    std::int64_t projections = 0;  ///< saved in addition to those of the rank's tokens
    std::int64_t outputs = 0;      ///< the same of outputs
    std::int64_t forward = 0;      ///< peak, the rank's projections and output included
    std::int64_t backward = 0;     ///< in addition to the gradients of projections and output
    std::int64_t first_half = 0;   ///< the same if the first half of a backward peaks there
  };
  ContextBytes context_bytes(std::int64_t rows) const;
  static std::int64_t saved_context_bytes(const ContextBytes& bytes, Recompute recompute) {
    return (recompute < Recompute::kProducts ? bytes.projections : 0) +
           (drops_attention(recompute) ? 0 : bytes.outputs);
  }

  /// Bytes that dropout needs in addition to its input, `own`.
  std::int64_t dropped_bytes(std::int64_t own, std::int64_t samples) const;

  /// What the backward of a transformer block does again. `columns`: of the products after norms.
  RepeatedWork repeated_block_work(const TensorSpec& stream, Recompute recompute,
                                   double columns) const;

  /// What of an exchange of heads and back are the operands.
  double operand_share() const;

  static bool drops_attention(Recompute recompute) { return recompute >= Recompute::kAttention; }

  /// Bytes of so many weights or activations.
  std::int64_t bytes_of(std::int64_t numel) const;
  /// On a host in 16 bit, the bytes that a product of so many rows, or its weight's gradient, needs
  /// in addition to operands and result; 0 otherwise.
  std::int64_t product_bytes(std::int64_t rows, std::int64_t in, std::int64_t out) const;
  std::int64_t weight_gradient_bytes(std::int64_t rows, std::int64_t in, std::int64_t out) const;

  /// Bytes while a chunk of at most so many rows of logits becomes loss and gradient: the logits
  /// and three numbers per row; on a host in 16 bit also what products need. A GPU has larger
  /// chunks, logits in the precision's type and losses in fp64.
  std::int64_t logit_bytes(std::int64_t rows) const;

  DecoderOptions options_;
  TensorSplit split_;
  at::ScalarType precision_;
  DeviceKind device_;
};

enum class HeadNorm : std::uint8_t { kLayerNorm, kRmsNorm };

struct DecoderParts {
  std::shared_ptr<const Layer> embedding;  ///< tokens -> stream
  std::shared_ptr<const Layer> block;      ///< stream -> stream
  HeadNorm norm = HeadNorm::kLayerNorm;    ///< before the head
};

/// Pre-norm transformer with learned positions and dropout.
/// Source  Radford et al. 2019 (GPT-2); Shoeybi et al. 2019 (the split).
DecoderParts gpt_parts(const DecoderSetup& setup);

/// Pre-norm transformer with RMSNorm, rotary positions, grouped queries and SwiGLU. With biases of
/// queries, keys and values it is a Qwen 2, with norms of queries and keys a Qwen 3.
/// Source  Touvron et al. 2023 (Llama); Grattafiori et al. 2024 (Llama 3); Qwen technical reports.
DecoderParts llama_parts(const DecoderSetup& setup);

/// Two streams -> their sum: a skip that may cross stages.
std::shared_ptr<const Layer> merge_layer(const DecoderSetup& setup);

/// Final norm and projection to the vocabulary: (stream, targets) -> the loss.
std::shared_ptr<const Layer> loss_head(const DecoderSetup& setup, HeadNorm norm);

/// A head with the same weights: stream -> logits [B, V] on every rank, after the last token of
/// each sample or, in a decoding pass, after the tokens that need them.
std::shared_ptr<const Layer> logits_head(const DecoderSetup& setup, HeadNorm norm);

}  // namespace strata
