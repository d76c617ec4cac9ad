/// Writes a conversation as the text that a chat model was trained on, by the template in the
/// folder of its tokenizer.
///
/// The template is `chat_template.jinja`, or `chat_template` in tokenizer_config.json (of several
/// the one named "default"); it sees messages, add_generation_prompt, tools (none) and the special
/// tokens that tokenizer_config.json names.
///
/// Threads  const, any thread.
/// Errors   UserError: a template that Strata does not support, or that refuses the conversation.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "strata/jinja/template.h"

namespace strata {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

/// Names of special tokens by their role: {"eos_token", "<|im_end|>"}.
using SpecialTokens = std::map<std::string, std::string>;

/// The special tokens that tokenizer_config.json names; empty without that file. `tokenizer`: a
/// folder, or a tokenizer.json in it.
SpecialTokens special_tokens(const std::string& tokenizer);

class ChatTemplate {
 public:
  /// The template of a tokenizer, which is a folder or a tokenizer.json in it; none if it has no
  /// template.
  static std::optional<ChatTemplate> find(const std::string& tokenizer);

  /// `name` stands for the template in errors.
  ChatTemplate(std::string text, const std::string& name, SpecialTokens special);

  /// `messages`: a list of objects, which the template sees unchanged. `more`: an object of other
  /// variables, which replace those of the same name.
  std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                     const nlohmann::ordered_json& more) const;

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  JinjaTemplate template_;
  SpecialTokens special_;
};

/// The text up to where the assistant's answer begins. UserError: the tokenizer has no template.
std::string chat_prompt(const std::string& tokenizer, const std::vector<ChatMessage>& messages);

}  // namespace strata
