/// Reads the body of POST /v1/chat/completions and writes its messages as the model's prompt.
///
/// Errors  ApiError 400 that names the field: a message without a role, content that is no text, a
///         model without a chat template, a conversation that the template refuses.
#pragma once

#include <string>

#include "strata/openai/completion_request.h"

namespace strata {

/// The text that the model's template makes of the field "messages".
std::string chat_text(const RequestFields& fields, const OpenAiModel& model);

AnswerRequest read_chat_request(const RequestFields& fields, const OpenAiModel& model);

}  // namespace strata
