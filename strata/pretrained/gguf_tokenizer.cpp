// SentencePiece merges the two neighbours whose piece has the best score, so each way to cut a
// piece into two pieces is a merge, ranked by the score of the whole.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/pretrained/gguf_texts.h"

namespace strata {
namespace {

using nlohmann::json;

const std::string kPrefix = "tokenizer.ggml.";
constexpr const char* kChatTemplate = "tokenizer.chat_template";
constexpr const char* kTakeFolder = "set data.tokenizer to the model's Hugging Face folder";
constexpr std::size_t kLongestPiece = 256;  // bytes
// Of a vocabulary of a million pieces; a hostile file could have one for every cut of every piece.
constexpr std::size_t kMostMerges = std::size_t{1} << 22;
const std::string kSpace = "▁";

// Source: tokenizer.json of Llama 3 and of Qwen 2.
constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// The tokens of a file, which are numbered by their place.
struct Tokens {
  std::vector<std::string> texts;
  std::vector<std::int32_t> types;  // as many

  TokenType type(std::size_t id) const { return static_cast<TokenType>(types[id]); }
  bool is_added(std::size_t id) const {
    return is_special(id) || type(id) == TokenType::kUserDefined;
  }
  bool is_special(std::size_t id) const {
    return type(id) == TokenType::kUnknown || type(id) == TokenType::kControl;
  }
};

std::vector<std::string> utf8_texts(const GgufFile& file, const std::string& key) {
  std::vector<std::string> texts = file.texts(key);
  for (const std::string& text : texts)
    if (utf8_bytes(text) != text.size())
      file.refuse(key, "a text is not UTF-8", "UTF-8", quote(text));
  return texts;
}

Tokens read_tokens(const GgufFile& file) {
  Tokens tokens{utf8_texts(file, kPrefix + "tokens"), {}};
  const std::string types = kPrefix + "token_type";
  tokens.types.assign(tokens.texts.size(), static_cast<std::int32_t>(TokenType::kNormal));
  if (file.has(types)) tokens.types = file.integers(types);
  if (tokens.types.size() != tokens.texts.size())
    file.refuse(types, "tokens and their types differ in number",
                std::to_string(tokens.texts.size()), std::to_string(tokens.types.size()));
  return tokens;
}

json vocabulary(const GgufFile& file, const Tokens& tokens) {
  json vocab = json::object();
  for (std::size_t id = 0; id < tokens.texts.size(); ++id)
    if (tokens.type(id) != TokenType::kUnused && !vocab.emplace(tokens.texts[id], id).second)
      file.refuse(kPrefix + "tokens", "a token occurs twice", "different tokens",
                  quote(tokens.texts[id]));
  return vocab;
}

std::string with_spaces(std::string text) {
  for (std::size_t at = 0; (at = text.find(kSpace, at)) != std::string::npos; ++at)
    text.replace(at, kSpace.size(), " ");
  return text;
}

json added_tokens(const Tokens& tokens) {
  json added = json::array();
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    if (!tokens.is_added(id)) continue;
    const bool special = tokens.is_special(id);
    added.push_back({{"id", id},
                     {"content", special ? tokens.texts[id] : with_spaces(tokens.texts[id])},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

// The token that a key of the metadata names by its number.
std::optional<std::size_t> named_token(const GgufFile& file, const Tokens& tokens,
                                       const std::string& name) {
  const std::string key = kPrefix + name + "_token_id";
  if (!file.has(key)) return std::nullopt;
  return file.integer(key, 0, static_cast<std::int64_t>(tokens.texts.size()) - 1);
}

// Every text begins with the token of begin if the file asks for it; `otherwise`: without the key.
json post_processor(const GgufFile& file, const Tokens& tokens, bool otherwise) {
  const auto bos = named_token(file, tokens, "bos");
  if (!file.flag(kPrefix + "add_bos_token", otherwise) || !bos) return nullptr;
  const std::string& text = tokens.texts[*bos];
  const auto special = [&](int type) -> json {
    return {{"SpecialToken", {{"id", text}, {"type_id", type}}}};
  };
  const auto sequence = [&](const char* id, int type) -> json {
    return {{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  return {
      {"type", "TemplateProcessing"},
      {"single", json::array({special(0), sequence("A", 0)})},
      {"pair", json::array({special(0), sequence("A", 0), special(1), sequence("B", 1)})},
      {"special_tokens",
       {{text, {{"id", text}, {"ids", json::array({*bos})}, {"tokens", json::array({text})}}}}}};
}

json byte_level(bool regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", regex}};
}

json sequence_of(json first, json second) {
  return {{"type", "Sequence"},
          {"pretokenizers", json::array({std::move(first), std::move(second)})}};
}

json split_words(const char* words) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", words}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

// How each `pre` splits text into words, as the tokenizer.json of its models does.
json byte_pre_tokenizer(const GgufFile& file, const std::string& pre) {
  if (pre == "gpt-2") return byte_level(true);
  if (pre == "smollm")
    return sequence_of({{"type", "Digits"}, {"individual_digits", true}}, byte_level(true));
  if (pre == "llama-bpe") return sequence_of(split_words(kLlama3Words), byte_level(false));
  if (pre == "qwen2") return sequence_of(split_words(kQwen2Words), byte_level(false));
  file.refuse(kPrefix + "pre", "a way to split text into words that Strata doesn't have",
              "gpt-2, llama-bpe, qwen2 or smollm", pre.empty() ? "none" : pre, kTakeFolder);
}

json read_byte_level(const GgufFile& file, const Tokens& tokens) {
  const std::string pre = file.text(kPrefix + "pre", "");
  const bool llama3 = pre == "llama-bpe";
  json result = {{"normalizer", nullptr},
                 {"pre_tokenizer", byte_pre_tokenizer(file, pre)},
                 {"post_processor", post_processor(file, tokens, llama3)},
                 {"decoder", byte_level(true)}};
  if (pre == "qwen2") result["normalizer"] = {{"type", "NFC"}};
  result["model"] = {{"type", "BPE"},
                     {"ignore_merges", llama3},
                     {"byte_fallback", false},
                     {"vocab", vocabulary(file, tokens)},
                     {"merges", utf8_texts(file, kPrefix + "merges")}};
  return result;
}

struct PieceMerge {
  std::string left, right;
  float score;
  std::size_t place;  // among equal scores
};

json merges_of_pieces(const GgufFile& file, const Tokens& tokens) {
  const std::vector<float> scores = file.reals(kPrefix + "scores");
  if (scores.size() != tokens.texts.size())
    file.refuse(kPrefix + "scores", "tokens and their scores differ in number",
                std::to_string(tokens.texts.size()), std::to_string(scores.size()));
  const auto is_piece = [&](std::size_t id) { return tokens.type(id) == TokenType::kNormal; };
  std::unordered_map<std::string_view, std::size_t> pieces;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id)
    if (is_piece(id)) pieces.emplace(tokens.texts[id], id);
  std::vector<PieceMerge> merges;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    const std::string_view piece = tokens.texts[id];
    if (!is_piece(id)) continue;
    if (piece.size() > kLongestPiece || scores[id] != scores[id])
      file.refuse(kPrefix + "tokens", "a piece is too long, or has no score",
                  "at most " + std::to_string(kLongestPiece) + " bytes", quote(piece));
    for (std::size_t cut = character_bytes(piece); cut < piece.size();
         cut += character_bytes(piece.substr(cut))) {
      const std::string_view left = piece.substr(0, cut), right = piece.substr(cut);
      if (!pieces.contains(left) || !pieces.contains(right)) continue;
      if (merges.size() == kMostMerges)
        file.refuse(kPrefix + "tokens", "the pieces have too many merges",
                    "at most " + std::to_string(kMostMerges), "more");
      merges.push_back({std::string(left), std::string(right), scores[id], merges.size()});
    }
  }
  std::ranges::sort(merges, [](const PieceMerge& a, const PieceMerge& b) {
    return a.score != b.score ? a.score > b.score : a.place < b.place;
  });
  json result = json::array();
  for (const PieceMerge& merge : merges) result.push_back({merge.left, merge.right});
  return result;
}

json read_pieces(const GgufFile& file, const Tokens& tokens) {
  if (file.flag(kPrefix + "remove_extra_whitespaces", false) ||
      file.has(kPrefix + "precompiled_charsmap"))
    file.refuse(kPrefix + "model", "a tokenizer that rewrites text before it splits it",
                "remove_extra_whitespaces false and no precompiled_charsmap", "one of them",
                kTakeFolder);
  const auto replace = [](const std::string& from, const std::string& to) -> json {
    return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  json normalizers = json::array({replace(" ", kSpace)});
  json decoders =
      json::array({replace(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (file.flag(kPrefix + "add_space_prefix", true)) {
    const json prepend = {{"type", "Prepend"}, {"prepend", kSpace}};
    normalizers.insert(normalizers.begin(), prepend);
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  const auto unknown = named_token(file, tokens, "unknown");
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", post_processor(file, tokens, true)},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", unknown ? json(tokens.texts[*unknown]) : json(nullptr)},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"ignore_merges", false},
            {"vocab", vocabulary(file, tokens)},
            {"merges", merges_of_pieces(file, tokens)}}}};
}

}  // namespace

std::string gguf_tokenizer_json(const GgufFile& file) {
  const std::string kind = file.text(kPrefix + "model");
  if (kind != "gpt2" && kind != "llama")
    file.refuse(kPrefix + "model", "a kind of tokenizer that Strata doesn't have", "gpt2 or llama",
                kind, kTakeFolder);
  const Tokens tokens = read_tokens(file);
  json result = kind == "gpt2" ? read_byte_level(file, tokens) : read_pieces(file, tokens);
  result["version"] = "1.0";
  result["truncation"] = nullptr;
  result["padding"] = nullptr;
  result["added_tokens"] = added_tokens(tokens);
  return result.dump();
}

std::string gguf_tokenizer_config_json(const GgufFile& file) {
  const Tokens tokens = read_tokens(file);
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [name, key] : std::map<std::string, std::string>{{"bos_token", "bos"},
                                                                    {"eos_token", "eos"},
                                                                    {"unk_token", "unknown"},
                                                                    {"pad_token", "padding"}})
    if (const auto id = named_token(file, tokens, key)) config[name] = tokens.texts[*id];
  if (file.has(kChatTemplate)) {
    const std::string chat = file.text(kChatTemplate);
    if (utf8_bytes(chat) != chat.size())
      file.refuse(kChatTemplate, "the chat template is not UTF-8", "UTF-8", quote(chat));
    config["chat_template"] = chat;
  }
  return config.dump();
}

}  // namespace strata
