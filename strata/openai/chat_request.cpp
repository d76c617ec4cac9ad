#include "strata/openai/chat_request.h"

#include <string>

#include "strata/base/errors.h"
#include "strata/openai/api_error.h"
#include "strata/openai/output_grammar.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

// Templates expect a text: the parts of a list are joined by line ends.
std::string content_text(const nlohmann::json& content, const std::string& place) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    refuse_field(place, "a text or a list of parts of type text", short_json(content));
  std::string text;
  for (const nlohmann::json& part : content) {
    const bool is_text = part.is_object() && part.value("type", nlohmann::json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) refuse_field(place, "a text or a list of parts of type text", short_json(part));
    text += (text.empty() ? "" : "\n") + part["text"].get<std::string>();
  }
  return text;
}

Json read_message(const nlohmann::json& message, const std::string& place) {
  if (!message.is_object()) refuse_field(place, "an object", short_json(message));
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string())
    refuse_field(place + ".role", "a text", role == message.end() ? "nothing" : short_json(*role));
  for (const char* call : {"tool_calls", "function_call"})
    if (message.contains(call) && !message[call].is_null() && !message[call].empty())
      refuse_unsupported(place + "." + call, "the server calls no tools");
  const auto content = message.find("content");
  if (content == message.end()) refuse_field(place + ".content", "a text", "nothing");
  Json known = {{"role", role->get<std::string>()},
                {"content", content_text(*content, place + ".content")}};
  if (const auto name = message.find("name"); name != message.end() && name->is_string())
    known["name"] = name->get<std::string>();
  return known;
}

Json read_messages(const RequestFields& fields) {
  const nlohmann::json* list = fields.find("messages");
  if (list == nullptr) refuse_field("messages", "a list of messages", "nothing");
  if (!list->is_array() || list->empty())
    refuse_field("messages", "a list of at least one message", short_json(*list));
  Json messages = Json::array();
  for (std::size_t i = 0; i < list->size(); ++i)
    messages.push_back(read_message((*list)[i], "messages[" + std::to_string(i) + "]"));
  return messages;
}

Json template_variables(const RequestFields& fields) {
  const nlohmann::json* value = fields.find("chat_template_kwargs");
  if (value == nullptr) return Json::object();
  if (!value->is_object()) refuse_field("chat_template_kwargs", "an object", short_json(*value));
  return Json(*value);
}

void read_chat_probabilities(const RequestFields& fields, AnswerOptions& options) {
  const bool wanted = fields.flag("logprobs", false);
  const auto likeliest = fields.whole("top_logprobs", 0, 0, kMaxLikeliest);
  if (!wanted && likeliest > 0) refuse_without("top_logprobs", "'logprobs': true");
  if (wanted) options.likeliest = static_cast<int>(likeliest);
}

}  // namespace

std::string chat_text(const RequestFields& fields, const OpenAiModel& model) {
  refuse_if_set(fields, "chat_template", "the model's own template is used");
  refuse_if_set(fields, "documents", "put texts into messages");
  const Json messages = read_messages(fields);
  const bool answers = fields.flag("add_generation_prompt", true);
  const Json variables = template_variables(fields);
  if (!model.chat)
    throw ApiError(
        {.message = "the model '" + model.name + "' has no chat template; use /v1/completions",
         .param = "messages",
         .code = "no_chat_template"});
  try {
    return model.chat->render(messages, answers, variables);
  } catch (const UserError& error) {
    throw ApiError({.message = "the chat template refused the conversation: " +
                               ApiError::of(error).parts().message,
                    .param = "messages",
                    .code = "template_error"});
  }
}

AnswerRequest read_chat_request(const RequestFields& fields, const OpenAiModel& model) {
  AnswerRequest request{.options = read_answer_options(fields, model.service->vocabulary()),
                        .prompts = {}};
  request.options.grammar = read_output_grammar(fields, model);
  for (const char* field : {"max_tokens", "max_completion_tokens"})
    if (fields.find(field) != nullptr)
      request.options.max_tokens = fields.whole(field, 0, 1, INT32_MAX);
  refuse_if_set(fields, "echo", "use /v1/completions");
  read_chat_probabilities(fields, request.options);
  request.prompts.push_back(prompt_tokens(model, chat_text(fields, model), false));
  fit_to_context(request, model, "messages", 0);
  return request;
}

}  // namespace strata
