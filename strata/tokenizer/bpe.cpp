#include "strata/tokenizer/bpe.h"

#include <filesystem>
#include <fstream>

#include "strata/base/errors.h"
#include "strata/tokenizer/added.h"
#include "strata/tokenizer/decode.h"
#include "strata/tokenizer/json.h"
#include "strata/tokenizer/merge.h"
#include "strata/tokenizer/normalize.h"
#include "strata/tokenizer/rules.h"
#include "strata/tokenizer/split.h"

namespace strata {
namespace {

nlohmann::json parse_json(const std::string& path) {
  const auto refuse = [&](const std::string& what, const std::string& got) {
    throw UserError(
        {.operation = "data.tokenizer",
         .where = path,
         .what = what,
         .expected = "bytes, a tokenizer.json of Hugging Face, or a folder that has one",
         .got = got,
         .fix = "set data.tokenizer=bytes, or to a model's folder"});
  };
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path))
    refuse("there is no tokenizer", "no readable file");
  nlohmann::json document = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) refuse("this is no tokenizer.json", "something that isn't JSON");
  if (!document.is_object() || !document.contains("model"))
    refuse("this is no tokenizer.json", "JSON without a model");
  return document;
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
      set_piece(id.get<std::int64_t>(), name, decoder_.bytes_of(name));
    for (const JsonPart& token : file.member("added_tokens").elements()) add_token(token);
    vocabulary_ = static_cast<std::int64_t>(pieces_.size());
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
      if (token >= 0 && token < vocabulary_) text += pieces_[token];
    std::size_t stripped = 0;
    for (std::size_t i = 0; i < decoder_.strip_times; ++i)
      if (std::string_view(text).substr(stripped).starts_with(decoder_.strip))
        stripped += decoder_.strip.size();
    return text.substr(stripped);
  }

 private:
  void set_piece(std::int64_t id, const std::string& name, const std::string& bytes) {
    if (id >= static_cast<std::int64_t>(pieces_.size())) pieces_.resize(id + 1);
    pieces_[id] = bytes;
    ids_[name] = id;
  }

  void add_token(const JsonPart& token) {
    if (token.flag("single_word", false)) token.member("single_word").refuse("false", "true");
    AddedToken added{.content = token.member("content").text(),
                     .id = token.member("id").number(),
                     .takes_left = token.flag("lstrip", false),
                     .takes_right = token.flag("rstrip", false)};
    set_piece(added.id, added.content, token.flag("special", false) ? "" : added.content);
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
  Decoder decoder_;
  BpeModel model_;
  AddedTokens raw_, normalized_;     // found before and after the normalizer
  std::vector<std::string> pieces_;  // bytes by token
  TextMap<std::int64_t> ids_;        // by name
};

}  // namespace

std::shared_ptr<const Tokenizer> read_bpe_tokenizer(const std::string& path) {
  const nlohmann::json document = parse_json(path);
  const auto tokenizer = std::make_shared<BpeTokenizer>(JsonPart(document, path, ""));
  const std::string config_path =
      (std::filesystem::path(path).parent_path() / "tokenizer_config.json").string();
  std::ifstream file(config_path);
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (config.is_object()) tokenizer->name_ends(JsonPart(config, config_path, ""));
  return tokenizer;
}

}  // namespace strata
