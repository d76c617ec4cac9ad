/// Answers POST /v1/embeddings.
///
/// The embedding of a text is the model's state after the last token of the text and after the last
/// norm, divided by its Euclidean length.
#pragma once

#include "strata/openai/api_call.h"
#include "strata/openai/served_models.h"

namespace strata {

/// As answer_generation(). All texts of a request share the passes of the model.
void answer_embeddings(const ServedModels& models, const ApiCall& call);

}  // namespace strata
