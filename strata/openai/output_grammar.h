/// Reads the fields that bind an answer to a JSON Schema, a regular expression, a grammar or a list
/// of texts: OpenAI's response_format, vLLM's structured_outputs and guided_*, llama.cpp's grammar
/// and json_schema.
///
/// Errors  ApiError 400 that names the field: two of the fields, a grammar that cannot be used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "strata/grammar/token_grammar.h"
#include "strata/openai/answer_options.h"
#include "strata/openai/model.h"
#include "strata/openai/request_fields.h"

namespace strata {

/// Null: the request has no such field.
std::shared_ptr<TokenGrammar> read_output_grammar(const RequestFields& fields,
                                                  const OpenAiModel& model);

/// SequenceRequest::allowed of one answer. A token of `ends` may follow a text that matches: from
/// min_tokens on and without ignore_ends, or if no other token may follow. Without `ends` the
/// answer ends when no token may follow.
/// Errors of the function: UserError if no token may follow a text that does not match yet.
std::function<std::vector<std::uint64_t>(const std::vector<std::int64_t>&)> allowed_by_grammar(
    const AnswerOptions& options, std::vector<std::int64_t> ends);

}  // namespace strata
