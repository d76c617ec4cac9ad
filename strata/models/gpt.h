/// Builds a GPT: pre-norm transformer with learned positions, tied or untied head, dropout.
///
/// Source  Radford et al. 2019 (GPT-2). Written as for one device; the mesh is not its business.
/// Shapes  B samples of T tokens, width C: tokens and targets [B, T] int64, values [B, T, C] fp32.
/// Errors  UserError: width not divisible by heads, context longer than trained for.
#pragma once

#include "strata/model/sequence.h"
#include "strata/models/gpt_options.h"

namespace strata {

enum class GptOutput { kLoss, kLogits };

/// kLoss: batch inputs "tokens" and "targets", the last layer is the loss. kLogits: batch input
/// "tokens", the last layer gives [B, V] logits of the last position; the same weights by name.
Sequence make_gpt(const GptOptions& options, GptOutput output = GptOutput::kLoss);

}  // namespace strata
