/// Makes the layers of which model.cpp composes a decoder: what architectures differ in, and the
/// head that they share.
///
/// Shapes  B samples of T tokens, width C: tokens and targets [B, T] int64, the stream [B, T, C] of
///         the precision, [B, T/n, C] on each of n ranks with sequence parallelism; loss and logits
///         fp32.
#pragma once

#include <memory>

#include "strata/models/decoder_options.h"
#include "strata/nn/layer.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

/// What a layer is made for: `options` are completed().
struct DecoderSetup {
  const DecoderOptions& options;
  TensorSplit split;
  at::ScalarType precision = at::kFloat;
};

enum class HeadNorm : std::uint8_t { kLayerNorm, kRmsNorm };

struct DecoderParts {
  std::shared_ptr<const Layer> embedding;  ///< tokens -> stream
  std::shared_ptr<const Layer> block;      ///< stream -> stream
  HeadNorm norm = HeadNorm::kLayerNorm;    ///< in front of the head
};

/// Pre-norm transformer with learned positions and dropout.
/// Source  Radford et al. 2019 (GPT-2); Shoeybi et al. 2019 (the split).
DecoderParts gpt_parts(const DecoderSetup& setup);

/// Pre-norm transformer with RMSNorm, rotary positions, grouped queries and SwiGLU; with biases of
/// queries, keys and values a Qwen 2, with norms of queries and keys a Qwen 3.
/// Source  Touvron et al. 2023 (Llama); Grattafiori et al. 2024 (Llama 3); Qwen technical reports.
DecoderParts llama_parts(const DecoderSetup& setup);

/// Two streams -> their sum: a skip that may cross stages.
std::shared_ptr<const Layer> merge_layer(const DecoderSetup& setup);

/// Final norm and projection to the vocabulary: (stream, targets) -> the loss.
std::shared_ptr<const Layer> loss_head(const DecoderSetup& setup, HeadNorm norm);

/// The same weights: stream -> logits of the last position [B, V], on every rank.
std::shared_ptr<const Layer> logits_head(const DecoderSetup& setup, HeadNorm norm);

}  // namespace strata
