/// Answers the routes of a model's tokenizer, in the shapes of vLLM's server.
///
/// Errors  ApiError
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "strata/openai/api_call.h"
#include "strata/openai/served_models.h"

namespace strata {

nlohmann::ordered_json tokenize(const ServedModels& models, const ApiCall& call);
nlohmann::ordered_json detokenize(const ServedModels& models, const ApiCall& call);
nlohmann::ordered_json tokenizer_info(const ServedModels& models, const ApiCall& call);

}  // namespace strata
