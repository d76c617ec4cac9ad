/// Builds the model that the options name.
///
/// Errors  UserError, as make_gpt and make_llama, and for fields that contradict the kind.
#pragma once

#include "strata/models/gpt.h"

namespace strata {

Sequence make_model(const GptOptions& options, GptOutput output = GptOutput::kLoss,
                    TensorSplit split = {}, at::ScalarType precision = at::kFloat);

}  // namespace strata
