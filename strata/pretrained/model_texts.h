/// Reads the texts that describe a pretrained model under their names in a Hugging Face folder:
/// config.json, tokenizer.json, tokenizer_config.json, chat_template.jinja.
///
/// A GGUF file stands for such a folder: its metadata is translated to these texts.
///
/// Threads  const, any thread.
/// Cost     a GGUF file is translated at each text() and json().
/// Errors   UserError that names the file: unreadable, too large, or (GGUF) a model or tokenizer
///          that cannot be translated.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "strata/base/json_document.h"

namespace strata {

class ModelTexts {
 public:
  virtual ~ModelTexts() = default;

  virtual const std::string& path() const = 0;                   ///< the folder or the GGUF file
  virtual std::string place(const std::string& name) const = 0;  ///< of a text, for errors
  virtual bool has(const std::string& name) const = 0;           ///< never throws for GGUF files
  virtual std::string text(const std::string& name) const = 0;   ///< UserError if there is none

  JsonDocument json(const std::string& name) const;
  std::optional<JsonDocument> json_if_there(const std::string& name) const;

 protected:
  explicit ModelTexts(FileUse use) : use_(std::move(use)) {}
  FileUse use_;
};

/// `path`: a folder, a tokenizer.json of any name in a folder, or a GGUF file. `use` is the purpose
/// of the texts, for errors.
std::unique_ptr<const ModelTexts> open_model_texts(const std::string& path, const FileUse& use);

inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kTokenizerName = "tokenizer.json";
inline constexpr const char* kTokenizerConfigName = "tokenizer_config.json";
inline constexpr const char* kChatTemplateName = "chat_template.jinja";

}  // namespace strata
