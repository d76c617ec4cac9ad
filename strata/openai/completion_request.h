/// Reads the body of POST /v1/completions.
///
/// Errors  ApiError 400 that names the field.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/openai/answer_options.h"
#include "strata/openai/model.h"
#include "strata/openai/request_fields.h"

namespace strata {

/// What both routes ask of a model: tokens to continue, and how.
struct AnswerRequest {
  AnswerOptions options;
  std::vector<std::vector<std::int64_t>> prompts;
  bool echo = false;        ///< the answer begins with the prompt
  bool embeds = false;      ///< the answer is the embedding of each prompt
  std::uint64_t scope = 0;  ///< as SequenceRequest::scope
};

/// A text, a list of texts, a list of tokens, or a list of lists of tokens.
std::vector<std::vector<std::int64_t>> read_prompts(const RequestFields& fields, const char* field,
                                                    const OpenAiModel& model);

AnswerRequest read_completion_request(const RequestFields& fields, const OpenAiModel& model);

/// Refuses an empty prompt, one that leaves no room for `max_tokens` in the model's context, and
/// more answers than may wait for the model at once, which it would always refuse.
/// Without max_tokens sets it to `default_tokens`, or to the room that is left if that is less; 0:
/// to the room that is left.
void fit_to_context(AnswerRequest& request, const OpenAiModel& model, const char* prompt_field,
                    std::int64_t default_tokens);

}  // namespace strata
