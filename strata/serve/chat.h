/// Writes a conversation as the text that a chat model was trained on, by the template beside its
/// tokenizer.
///
/// The template is `chat_template.jinja`, or `chat_template` in tokenizer_config.json (of several
/// the one named "default"); it sees messages, add_generation_prompt, tools (none) and the special
/// tokens that tokenizer_config.json names.
///
/// Errors  UserError: no template; one that Strata does not support, or that refuses the
///         conversation.
#pragma once

#include <string>
#include <vector>

namespace strata {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

/// The text up to where the assistant's answer begins. `tokenizer`: a folder, or a tokenizer.json
/// in it.
std::string chat_prompt(const std::string& tokenizer, const std::vector<ChatMessage>& messages);

}  // namespace strata
