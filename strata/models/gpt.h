/// Builds a GPT: pre-norm transformer with learned positions, tied or untied head, dropout.
///
/// Written as for one device, but for one thing: its weights say how tensor-parallel ranks divide
/// them, and its products at which border of a split region they stand.
///
/// Source  Radford et al. 2019 (GPT-2); Shoeybi et al. 2019 (the split).
/// Shapes  B samples of T tokens, width C: tokens and targets [B, T] int64, values [B, T, C] of the
///         precision, [B, T/n, C] on each of n ranks with sequence parallelism; loss and logits
///         fp32.
/// Errors  UserError: width not divisible by heads, context longer than trained for; heads, or the
///         context with sequence parallelism, not divisible by the tensor-parallel ranks.
#pragma once

#include "strata/models/gpt_options.h"
#include "strata/nn/sequence.h"

namespace strata {

enum class GptOutput { kLoss, kLogits };

/// kLoss: batch inputs "tokens" and "targets", the last layer is the loss. kLogits: batch input
/// "tokens", the last layer gives [B, V] logits of the last position; the same weights by name.
/// Costs are those of one rank of the split. `precision` of weights and values: fp32, bf16 or fp16.
Sequence make_gpt(const GptOptions& options, GptOutput output = GptOutput::kLoss,
                  TensorSplit split = {}, at::ScalarType precision = at::kFloat);

}  // namespace strata
