#include "strata/serve/chat.h"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/jinja/template.h"

namespace strata {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = 1 << 20;

const FileUse kFile{.operation = "serve.chat",
                    .fix = "use --prompt, or --set data.tokenizer=FOLDER of a chat model"};

struct TemplateText {
  std::string text;
  std::string name;  // for errors
};

std::string folder_of(const std::string& tokenizer) {
  std::error_code none;
  if (std::filesystem::is_directory(tokenizer, none)) return tokenizer;
  return std::filesystem::path(tokenizer).parent_path().string();
}

std::optional<JsonDocument> tokenizer_config(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "tokenizer_config.json").string();
  if (!std::filesystem::exists(path)) return std::nullopt;
  return JsonDocument::read(path, kFile);
}

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

TemplateText template_of(const std::string& folder, const std::optional<JsonDocument>& config) {
  const std::string path = (std::filesystem::path(folder) / "chat_template.jinja").string();
  if (std::filesystem::exists(path)) return {read_file(path, kFile, kMaxTemplateBytes), path};
  if (config)
    if (auto found = template_in(*config)) return *std::move(found);
  throw UserError({.operation = kFile.operation,
                   .where = folder,
                   .what = "the tokenizer has no chat template",
                   .expected = "chat_template.jinja, or chat_template in tokenizer_config.json",
                   .fix = kFile.fix});
}

void add_special_tokens(const JsonDocument& config, nlohmann::ordered_json& variables) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const JsonPart token = config.root().member(name);
    if (token.is_null()) continue;
    variables[name] =
        token.value().is_string() ? token.text() : token.required_member("content").text();
  }
}

}  // namespace

std::string chat_prompt(const std::string& tokenizer, const std::vector<ChatMessage>& messages) {
  const std::string folder = folder_of(tokenizer);
  const auto config = tokenizer_config(folder);
  const TemplateText text = template_of(folder, config);
  nlohmann::ordered_json variables = {
      {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", true}};
  if (config) add_special_tokens(*config, variables);
  variables["messages"] = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages)
    variables["messages"].push_back({{"role", message.role}, {"content", message.content}});
  try {
    return JinjaTemplate::parse(text.text, text.name).render(variables);
  } catch (const UserError& error) {
    ErrorText refusal = error.text();
    refusal.fix = "use --prompt, or put another template into chat_template.jinja";
    throw UserError(std::move(refusal));
  }
}

}  // namespace strata
