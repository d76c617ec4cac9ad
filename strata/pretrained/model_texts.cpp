#include "strata/pretrained/model_texts.h"

#include <filesystem>

#include "strata/pretrained/gguf_file.h"
#include "strata/pretrained/gguf_texts.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class FolderTexts : public ModelTexts {
 public:
  FolderTexts(const std::string& path, const FileUse& use) : ModelTexts(use), folder_(path) {
    std::error_code none;
    if (fs::is_directory(path, none)) return;
    tokenizer_ = path;
    folder_ = fs::path(path).parent_path().string();
  }

  const std::string& path() const override { return folder_; }

  std::string place(const std::string& name) const override {
    if (name == kTokenizerName && !tokenizer_.empty()) return tokenizer_;
    return (fs::path(folder_) / name).string();
  }

  bool has(const std::string& name) const override { return name_exists(place(name)); }

  std::string text(const std::string& name) const override {
    return read_file(place(name), use_, kMaxJsonBytes);
  }

 private:
  std::string folder_, tokenizer_;
};

}  // namespace

JsonDocument ModelTexts::json(const std::string& name) const {
  return JsonDocument::parse(text(name), place(name), use_);
}

std::optional<JsonDocument> ModelTexts::json_if_there(const std::string& name) const {
  return has(name) ? std::optional(json(name)) : std::nullopt;
}

std::unique_ptr<const ModelTexts> open_model_texts(const std::string& path, const FileUse& use) {
  if (is_gguf(path)) return std::make_unique<GgufTexts>(path, use);
  return std::make_unique<FolderTexts>(path, use);
}

}  // namespace strata
