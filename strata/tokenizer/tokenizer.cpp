// Added tokens are searched twice: those that are not `normalized` in the original text, the others
// in the normalized text between them. So the normalizer never changes the former, and a normalized
// token is found in every spelling that normalizes to it.
#include "strata/tokenizer/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "strata/base/json_document.h"
#include "strata/pretrained/model_texts.h"
#include "strata/tokenizer/bpe.h"
#include "strata/tokenizer/decoder.h"
#include "strata/tokenizer/pattern.h"
#include "strata/tokenizer/words.h"

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

// The tokens that the post-processor adds before a text. Those after it are ignored, because a
// finished text is not continued.
std::vector<std::int64_t> read_prefix(const JsonPart& post_processor) {
  std::vector<std::int64_t> prefix;
  for (const JsonPart& step : steps_of(post_processor, "processors")) {
    const std::string type = type_of(step);
    if (type == "ByteLevel") continue;  // changes offsets only, which are unused
    if (type != "TemplateProcessing") step.refuse("ByteLevel or TemplateProcessing", type);
    for (const JsonPart& part : step.member("single").elements()) {
      const JsonPart special = part.member("SpecialToken");
      if (special.is_null()) break;
      const JsonPart token = step.member("special_tokens").member(special.member("id").text());
      for (const JsonPart& id : token.member("ids").elements())
        prefix.push_back(id.number(0, INT32_MAX));
    }
  }
  return prefix;
}

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(const JsonPart& file)
      : normalizer_(read_normalizer(file.member("normalizer"))),
        pre_tokenizer_(file.member("pre_tokenizer")),
        decoder_(read_decoder(file.member("decoder"))),
        model_(read_bpe_rules(file.member("model"), pre_tokenizer_.byte_level())) {
    if (decoder_.byte_level != pre_tokenizer_.byte_level())
      file.member("decoder").refuse("ByteLevel in both pre_tokenizer and decoder, or in neither",
                                    "it in one of them");
    const JsonPart vocabulary = file.member("model").member("vocab");
    for (const auto& [name, id] : vocabulary.value().items())
      set_token(id.get<std::int64_t>(), name, decoder_.bytes_of(name));
    const JsonPart added = file.member("added_tokens");
    if (!added.is_null())
      for (const JsonPart& token : added.elements()) add_token(token);
    prefix_ = read_prefix(file.member("post_processor"));
    for (const std::int64_t token : prefix_)
      if (token >= vocabulary_)
        file.member("post_processor").refuse("tokens of the vocabulary", std::to_string(token));
    if (!prefix_.empty()) bos_ = prefix_.front();
  }

  /// `config`: tokenizer_config.json.
  void name_ends(const JsonPart& config) {
    if (const auto token = named_token(config.member("bos_token"))) bos_ = token;
    if (const auto token = named_token(config.member("eos_token"))) eos_ = token;
  }

  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> tokens;
    BpeModel::WordCache cache;
    raw_.split(text, [&](const AddedSplit& part) {
      if (part.token != nullptr) return tokens.push_back(part.token->id);
      std::string changed;
      std::string_view normal = part.text;
      for (const TextStep& step : normalizer_) normal = changed = step(normal);
      const bool first = part.text.data() == text.data();
      normalized_.split(normal, [&](const AddedSplit& inner) {
        if (inner.token != nullptr) return tokens.push_back(inner.token->id);
        pre_tokenizer_.split({inner.text, first && inner.text.data() == normal.data()},
                             [&](const Word& word) { model_.encode(word.text, cache, tokens); });
      });
    });
    return tokens;
  }

  std::string decode(std::span<const std::int64_t> tokens) const override {
    std::string text;
    for (const std::int64_t token : tokens)
      if (const auto found = token_bytes_.find(token); found != token_bytes_.end())
        text += found->second;
    std::size_t stripped = 0;
    for (std::size_t i = 0; i < decoder_.strip_times; ++i) {
      if (!std::string_view(text).substr(stripped).starts_with(decoder_.strip)) break;
      stripped += decoder_.strip.size();
    }
    return text.substr(stripped);
  }

 private:
  void set_token(std::int64_t id, const std::string& name, const std::string& bytes) {
    vocabulary_ = std::max(vocabulary_, id + 1);
    token_bytes_[id] = bytes;
    ids_[name] = id;
  }

  void add_token(const JsonPart& token) {
    if (token.flag("single_word", false)) token.member("single_word").refuse("false", "true");
    AddedToken added{.content = token.member("content").text(),
                     .id = token.member("id").number(0, INT32_MAX),
                     .takes_left = token.flag("lstrip", false),
                     .takes_right = token.flag("rstrip", false)};
    set_token(added.id, added.content, token.flag("special", false) ? "" : added.content);
    const bool normalized = token.flag("normalized", true);
    if (normalized)
      for (const TextStep& step : normalizer_) added.content = step(added.content);
    (normalized ? normalized_ : raw_).add(std::move(added));
  }

  std::optional<std::int64_t> named_token(const JsonPart& name) const {
    if (name.is_null()) return std::nullopt;
    const auto found =
        ids_.find(name.value().is_string() ? name.text() : name.member("content").text());
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  std::vector<TextStep> normalizer_;
  PreTokenizer pre_tokenizer_;
  TokenDecoder decoder_;
  BpeModel model_;
  AddedTokens raw_, normalized_;  // searched before and after the normalizer
  // Bytes by token; not a list, because a file may number its tokens from 2 billion.
  std::unordered_map<std::int64_t, std::string> token_bytes_;
  TextMap<std::int64_t> ids_;  // by name
};

std::shared_ptr<const Tokenizer> read_bpe_tokenizer(const std::string& name) {
  const FileUse use{.operation = "tokenizer.open",
                    .fix =
                        "set data.tokenizer to a model's folder, its tokenizer.json or a GGUF "
                        "file, or to bytes; for what isn't supported, write a token file with the "
                        "tokenizer's own library and set data.tokenizer=none"};
  const auto texts = open_model_texts(name, use);
  const auto tokenizer = std::make_shared<BpeTokenizer>(texts->json(kTokenizerName).root());
  if (const auto config = texts->json_if_there(kTokenizerConfigName))
    tokenizer->name_ends(config->root());
  return tokenizer;
}

}  // namespace

std::vector<std::int64_t> Tokenizer::encode_with_prefix(std::string_view text) const {
  std::vector<std::int64_t> tokens = prefix_;
  const std::vector<std::int64_t> own = encode(text);
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

std::vector<std::int64_t> Tokenizer::ends() const {
  std::vector<std::int64_t> tokens;
  if (eos_) tokens.push_back(*eos_);
  if (bos_ && bos_ != eos_) tokens.push_back(*bos_);
  return tokens;
}

TokenizerKind tokenizer_kind(std::string_view name) {
  if (name == "bytes") return TokenizerKind::kBytes;
  return name == "none" ? TokenizerKind::kNone : TokenizerKind::kFile;
}

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name) {
  if (tokenizer_kind(name) == TokenizerKind::kBytes) return std::make_shared<ByteTokenizer>();
  return read_bpe_tokenizer(name);
}

}  // namespace strata
