/// Starts the sequences of a request that a front end has read.
#pragma once

#include <memory>

#include "strata/openai/api_call.h"
#include "strata/openai/generation.h"

namespace strata {

/// Reserves the tokens of the key, and submits the sequences. `key`: null if the server needs none.
/// Errors: ApiError of the key and of Generation::submit().
std::shared_ptr<Generation> start_generation(const std::shared_ptr<const OpenAiModel>& model,
                                             AnswerRequest request,
                                             const std::shared_ptr<ApiKey>& key);

/// Cancels the generation if the client of the call leaves.
void end_with_client(const std::shared_ptr<Generation>& generation, const ApiCall& call);

/// ApiError 503, unless the model's service is ready. Call it before reading a request: reading
/// needs the context of the service.
void refuse_unless_ready(const OpenAiModel& model);

}  // namespace strata
