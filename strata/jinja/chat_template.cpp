#include "strata/jinja/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/pretrained/model_texts.h"

namespace strata {
namespace {

const FileUse kChatFile{.operation = "jinja.chat",
                        .fix = "use --prompt, or --set data.tokenizer=FOLDER of a chat model"};

struct TemplateText {
  std::string text;
  std::string name;  // for errors
};

// A text, or a list of {"name", "template"}.
std::optional<TemplateText> template_in(const JsonDocument& config) {
  const JsonPart part = config.root().member("chat_template");
  if (part.is_null()) return std::nullopt;
  const std::string name = part.file() + ": chat_template";
  if (!part.value().is_array()) return TemplateText{part.text(), name};
  for (const JsonPart& each : part.elements())
    if (each.text("name", "") == "default")
      return TemplateText{each.required_member("template").text(), name};
  return std::nullopt;
}

std::optional<TemplateText> template_of(const ModelTexts& texts,
                                        const std::optional<JsonDocument>& config) {
  if (texts.has(kChatTemplateName))
    return TemplateText{texts.text(kChatTemplateName), texts.place(kChatTemplateName)};
  return config ? template_in(*config) : std::nullopt;
}

SpecialTokens special_tokens_in(const std::optional<JsonDocument>& config) {
  SpecialTokens tokens;
  if (!config) return tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const JsonPart token = config->root().member(name);
    if (token.is_null()) continue;
    tokens[name] =
        token.value().is_string() ? token.text() : token.required_member("content").text();
  }
  return tokens;
}

}  // namespace

SpecialTokens special_tokens(const std::string& tokenizer) {
  return special_tokens_in(
      open_model_texts(tokenizer, kChatFile)->json_if_there(kTokenizerConfigName));
}

std::optional<ChatTemplate> ChatTemplate::find(const std::string& tokenizer) {
  const auto texts = open_model_texts(tokenizer, kChatFile);
  const auto config = texts->json_if_there(kTokenizerConfigName);
  auto text = template_of(*texts, config);
  if (!text) return std::nullopt;
  return ChatTemplate(std::move(text->text), text->name, special_tokens_in(config));
}

ChatTemplate::ChatTemplate(std::string text, const std::string& name, SpecialTokens special)
    : text_(std::move(text)),
      template_(JinjaTemplate::parse(text_, name)),
      special_(std::move(special)) {}

std::string ChatTemplate::render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                 const nlohmann::ordered_json& more) const {
  nlohmann::ordered_json variables = {
      {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", add_generation_prompt}};
  for (const auto& [name, token] : special_) variables[name] = token;
  for (const auto& [name, value] : more.items()) variables[name] = value;
  variables["messages"] = messages;
  return template_.render(variables);
}

std::string chat_prompt(const std::string& tokenizer, const std::vector<ChatMessage>& messages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  try {
    if (const auto found = ChatTemplate::find(tokenizer))
      return found->render(list, true, nlohmann::ordered_json::object());
  } catch (const UserError& error) {
    if (error.text().operation == kChatFile.operation) throw;
    ErrorText refusal = error.text();
    refusal.fix = "use --prompt, or put another template into chat_template.jinja";
    throw UserError(std::move(refusal));
  }
  throw UserError({.operation = kChatFile.operation,
                   .where = open_model_texts(tokenizer, kChatFile)->path(),
                   .what = "the tokenizer has no chat template",
                   .expected = "chat_template.jinja, or chat_template in tokenizer_config.json",
                   .got = "",
                   .fix = kChatFile.fix});
}

}  // namespace strata
