/// Answers POST /v1/completions and POST /v1/chat/completions.
#pragma once

#include "strata/openai/answer_json.h"
#include "strata/openai/api_call.h"
#include "strata/openai/served_models.h"

namespace strata {

/// Returns when the request is submitted; the answer follows. A client that leaves ends its
/// request. Errors: ApiError of the request, the key and the service.
void answer_generation(AnswerKind kind, const ServedModels& models, const ApiCall& call);

}  // namespace strata
