#include "strata/openai/completion_request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "strata/openai/api_error.h"
#include "strata/openai/output_grammar.h"

namespace strata {
namespace {

constexpr std::int64_t kDefaultTokens = 16;
const char* const kPromptKinds =
    "a text, a list of texts, a list of tokens, or a list of lists of tokens";

using Tokens = std::vector<std::int64_t>;

void read_candidates(const RequestFields& fields, AnswerOptions& options) {
  options.candidates =
      static_cast<int>(fields.whole("best_of", options.choices, options.choices, kMaxChoices));
  if (options.stream && options.candidates > options.choices)
    refuse_field("best_of", "'n' if 'stream' is true", std::to_string(options.candidates));
}

void refuse_more_than_may_wait(const AnswerRequest& request, const OpenAiModel& model,
                               const char* prompt_field) {
  const AnswerOptions& options = request.options;
  const std::int64_t sequences = std::ssize(request.prompts) * options.candidates;
  const std::int64_t most = model.service->most_waiting();
  if (sequences <= most) return;
  const char* field = request.prompts.size() > 1             ? prompt_field
                      : options.candidates > options.choices ? "best_of"
                                                             : "n";
  throw ApiError({.message = "'" + std::string(field) + "' asks for " + std::to_string(sequences) +
                             " answers; at most " + std::to_string(most) + " may wait",
                  .param = field,
                  .code = "invalid_value"});
}

}  // namespace

std::vector<Tokens> read_prompts(const RequestFields& fields, const char* field,
                                 const OpenAiModel& model) {
  const nlohmann::json* prompt = fields.find(field);
  if (prompt == nullptr) refuse_field(field, kPromptKinds, "nothing");
  const bool begins = fields.flag("add_special_tokens", true);
  if (prompt->is_string())
    return {prompt_tokens(model, prompt->get_ref<const std::string&>(), begins)};
  if (!prompt->is_array() || prompt->empty())
    refuse_field(field, kPromptKinds, short_json(*prompt));
  const std::int64_t vocabulary = model.service->vocabulary();
  if (prompt->front().is_number()) return {read_tokens(*prompt, field, vocabulary)};
  std::vector<Tokens> prompts;
  for (const nlohmann::json& each : *prompt) {
    if (each.type() != prompt->front().type() || !(each.is_string() || each.is_array()))
      refuse_field(field, kPromptKinds, short_json(*prompt));
    prompts.push_back(each.is_string()
                          ? prompt_tokens(model, each.get_ref<const std::string&>(), begins)
                          : read_tokens(each, field, vocabulary));
  }
  return prompts;
}

AnswerRequest read_completion_request(const RequestFields& fields, const OpenAiModel& model) {
  AnswerRequest request{.options = read_answer_options(fields, model.service->vocabulary()),
                        .prompts = {},
                        .echo = fields.flag("echo", false)};
  AnswerOptions& options = request.options;
  options.grammar = read_output_grammar(fields, model);
  if (fields.find("max_tokens") != nullptr)
    options.max_tokens = fields.whole("max_tokens", 0, 0, INT32_MAX);
  if (fields.find("logprobs") != nullptr)
    options.likeliest = static_cast<int>(fields.whole("logprobs", 0, 0, kMaxLikeliest));
  read_candidates(fields, options);
  request.prompts = read_prompts(fields, "prompt", model);
  fit_to_context(request, model, "prompt", kDefaultTokens);
  return request;
}

void fit_to_context(AnswerRequest& request, const OpenAiModel& model, const char* prompt_field,
                    std::int64_t default_tokens) {
  refuse_more_than_may_wait(request, model, prompt_field);
  AnswerOptions& options = request.options;
  const std::int64_t context = model.service->context();
  std::size_t longest = 0;
  for (const Tokens& prompt : request.prompts) {
    if (prompt.empty()) refuse_field(prompt_field, "at least one token", "none");
    longest = std::max(longest, prompt.size());
  }
  const std::int64_t room = context - static_cast<std::int64_t>(longest);
  const std::int64_t needed = options.max_tokens.value_or(1);
  if (room < needed)
    throw ApiError({.message = "the model's context is " + std::to_string(context) +
                               " tokens; the prompt has " + std::to_string(longest) +
                               " and the answer needs " + std::to_string(needed),
                    .param = prompt_field,
                    .code = "context_length_exceeded"});
  if (!options.max_tokens)
    options.max_tokens = default_tokens > 0 ? std::min(default_tokens, room) : room;
  if (options.min_tokens > *options.max_tokens)
    refuse_field("min_tokens", "at most max_tokens, " + std::to_string(*options.max_tokens),
                 std::to_string(options.min_tokens));
}

}  // namespace strata
