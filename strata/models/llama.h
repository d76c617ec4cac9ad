/// Builds a Llama: pre-norm transformer with RMSNorm, rotary positions, grouped queries and SwiGLU;
/// with biases of queries, keys and values a Qwen 2, with norms of queries and keys a Qwen 3.
///
/// Source  Touvron et al. 2023 (Llama); Grattafiori et al. 2024 (Llama 3); Qwen technical reports;
///         Shoeybi et al. 2019 (the split).
/// Shapes  B samples of T tokens, width C: tokens and targets [B, T] int64, values [B, T, C] of the
///         precision, [B, T/n, C] on each of n ranks with sequence parallelism; loss and logits
///         fp32.
/// Errors  UserError: options that contradict each other, samples longer than the context; key and
///         value heads, or the context with sequence parallelism, that don't divide among the
///         tensor-parallel ranks.
#pragma once

#include "strata/models/gpt.h"

namespace strata {

Sequence make_llama(const GptOptions& options, GptOutput output = GptOutput::kLoss,
                    TensorSplit split = {}, at::ScalarType precision = at::kFloat);

}  // namespace strata
