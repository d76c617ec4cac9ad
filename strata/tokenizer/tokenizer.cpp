#include "strata/tokenizer/tokenizer.h"

#include <filesystem>

#include "strata/tokenizer/bpe.h"

namespace strata {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() { vocabulary_ = 256; }

  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> tokens;
    tokens.reserve(text.size());
    for (const unsigned char byte : text) tokens.push_back(byte);
    return tokens;
  }

  std::string decode(std::span<const std::int64_t> tokens) const override {
    std::string text;
    for (const std::int64_t token : tokens)
      if (token >= 0 && token < 256) text += static_cast<char>(token);
    return text;
  }
};

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_shared<ByteTokenizer>();
  return read_bpe_tokenizer(std::filesystem::is_directory(name) ? name + "/tokenizer.json" : name);
}

}  // namespace strata
