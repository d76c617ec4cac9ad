#include "strata/pretrained/gguf_texts.h"

#include "strata/pretrained/gguf_architecture.h"

namespace strata {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";

}  // namespace

bool GgufTexts::has(const std::string& name) const {
  if (name == kConfigName) return true;
  const auto model = file_->metadata().find(kModel);
  const bool tokens = model != file_->metadata().end() &&
                      model->second != GgufValue(std::string("none")) &&
                      model->second != GgufValue(std::string("no_vocab"));
  return tokens && (name == kTokenizerName || name == kTokenizerConfigName);
}

std::string GgufTexts::text(const std::string& name) const {
  if (name == kConfigName) return GgufArchitecture(*file_).config_json();
  if (!has(name))
    file_->refuse("", "the file holds no such text", name, "none",
                  "set data.tokenizer to the model's Hugging Face folder");
  return name == kTokenizerName ? gguf_tokenizer_json(*file_) : gguf_tokenizer_config_json(*file_);
}

}  // namespace strata
