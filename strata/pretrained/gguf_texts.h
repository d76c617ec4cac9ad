/// Translates the metadata of a GGUF file to the texts of a Hugging Face folder.
///
/// Errors  UserError that names the file and the key: a kind of tokenizer or a splitting of words
///         that is not supported, tokens that contradict each other.
#pragma once

#include <memory>
#include <string>

#include "strata/pretrained/gguf_file.h"
#include "strata/pretrained/model_texts.h"

namespace strata {

class GgufTexts : public ModelTexts {
 public:
  GgufTexts(const std::string& path, const FileUse& use)
      : ModelTexts(use), file_(GgufFile::open(path)) {}

  const std::string& path() const override { return file_->path(); }
  std::string place(const std::string& name) const override { return path() + " as " + name; }
  bool has(const std::string& name) const override;
  std::string text(const std::string& name) const override;

 private:
  std::shared_ptr<const GgufFile> file_;
};

/// tokenizer.json, for tokenizer.ggml.model gpt2 (byte-level BPE) and llama (SentencePiece's BPE,
/// whose merges follow from the pieces and their scores).
std::string gguf_tokenizer_json(const GgufFile& file);

/// tokenizer_config.json: the special tokens and the chat template.
std::string gguf_tokenizer_config_json(const GgufFile& file);

}  // namespace strata
