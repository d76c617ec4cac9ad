#include "strata/openai/tokenizer_routes.h"

#include <nlohmann/json.hpp>
#include <string>

#include "strata/openai/api_error.h"
#include "strata/openai/chat_request.h"

namespace strata {
namespace {

std::vector<std::int64_t> tokens_of(const RequestFields& fields, const OpenAiModel& model) {
  if (fields.find("messages") != nullptr)
    return prompt_tokens(model, chat_text(fields, model), fields.flag("add_special_tokens", false));
  const nlohmann::json* prompt = fields.find("prompt");
  if (prompt == nullptr || !prompt->is_string())
    refuse_field("prompt", "a text", prompt == nullptr ? "nothing" : short_json(*prompt));
  return prompt_tokens(model, prompt->get_ref<const std::string&>(),
                       fields.flag("add_special_tokens", true));
}

}  // namespace

nlohmann::ordered_json tokenize(const ServedModels& models, const ApiCall& call) {
  const RequestFields fields(call.request().body);
  const OpenAiModel& model = *models.of(fields, call).model;
  const auto tokens = tokens_of(fields, model);
  return {{"count", tokens.size()},
          {"max_model_len", model.service->context()},
          {"tokens", tokens},
          {"token_strs", nullptr}};
}

nlohmann::ordered_json detokenize(const ServedModels& models, const ApiCall& call) {
  const RequestFields fields(call.request().body);
  const OpenAiModel& model = *models.of(fields, call).model;
  if (fields.find("tokens") == nullptr) refuse_field("tokens", "a list of tokens", "nothing");
  const auto tokens = fields.tokens("tokens", model.service->vocabulary());
  return {{"prompt", decoded_text(model, tokens)}};
}

nlohmann::ordered_json tokenizer_info(const ServedModels& models, const ApiCall& call) {
  const std::string name(call.request().query_value("model"));
  const OpenAiModel& model = *(name.empty() ? models.only(call) : models.named(name, call)).model;
  nlohmann::ordered_json info = {{"tokenizer_class", "Strata"},
                                 {"vocab_size", model.tokenizer->vocabulary()},
                                 {"model_max_length", model.service->context()},
                                 {"bos_token", nullptr},
                                 {"eos_token", nullptr},
                                 {"pad_token", nullptr},
                                 {"unk_token", nullptr}};
  for (const auto& [role, token] : model.special) info[role] = token;
  info["chat_template"] = nullptr;
  if (model.chat) info["chat_template"] = model.chat->text();
  return info;
}

}  // namespace strata
