// The symbols of a word are a linked list; possible merges are a queue by rank. A merge changes the
// adjacent pairs, but their old entries stay in the queue: a candidate whose symbols have changed
// is recognised when it is popped (no such pair, or one of another rank) and dropped. Among equal
// ranks the leftmost merges first, as in the `tokenizers` library.
#include "strata/tokenizer/bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>

#include "strata/base/errors.h"
#include "strata/base/json_text.h"
#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/tokenizer/decoder.h"

namespace strata {
namespace {

constexpr std::size_t kLongWord = 256;  // bytes; longer ones are cut and not cached
constexpr std::size_t kRememberedWords = 1 << 18;

std::uint64_t key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

// The symbols of one word as a linked list, and the merges that could be next.
class BpeModel::Merging {
 public:
  Merging(const BpeModel& model, const std::vector<std::int32_t>& symbols) : model_(model) {
    const auto count = static_cast<std::int32_t>(symbols.size());
    for (std::int32_t i = 0; i < count; ++i)
      symbols_.push_back({symbols[i], i - 1, i + 1 < count ? i + 1 : -1});
    for (std::int32_t i = 0; i + 1 < count; ++i) propose(i);
  }

  std::vector<std::int32_t> run() {
    while (!candidates_.empty()) {
      const Candidate candidate = candidates_.top();
      candidates_.pop();
      merge(candidate);
    }
    std::vector<std::int32_t> tokens;
    for (const Symbol& symbol : symbols_)
      if (symbol.token >= 0) tokens.push_back(symbol.token);
    return tokens;
  }

 private:
  struct Candidate {
    std::int32_t rank;
    std::int32_t left;                              // position of the left symbol
    bool operator<(const Candidate& other) const {  // the queue's top is the greatest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  const Merge* merge_at(std::int32_t left) const {
    const Symbol& symbol = symbols_[left];
    if (symbol.token < 0 || symbol.next < 0) return nullptr;
    return model_.find(symbol.token, symbols_[symbol.next].token);
  }

  void propose(std::int32_t left) {
    if (const Merge* found = merge_at(left)) candidates_.push({found->rank, left});
  }

  void merge(const Candidate& candidate) {
    const Merge* found = merge_at(candidate.left);
    // an adjacent merge has changed it
    if (found == nullptr || found->rank != candidate.rank) return;
    Symbol& left = symbols_[candidate.left];
    Symbol& right = symbols_[left.next];
    left.token = found->token;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) symbols_[left.next].previous = candidate.left;
    if (left.previous >= 0) propose(left.previous);
    propose(candidate.left);
  }

  const BpeModel& model_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> candidates_;
};

BpeModel::BpeModel(BpeRules rules) : rules_(std::move(rules)) {
  const auto id = [&](const std::string& token) {
    const auto found = rules_.ids.find(token);
    STRATA_CHECK(found != rules_.ids.end(), "tokenizer.open");
    return found->second;
  };
  const auto symbols = [&](const std::string& token) {
    const auto& bytes = rules_.byte_tokens;
    const bool byte =
        rules_.byte_fallback && std::find(bytes.begin(), bytes.end(), id(token)) != bytes.end();
    return byte ? std::vector<std::int32_t>{id(token)} : symbols_of(token);
  };
  merges_.reserve(rules_.merges.size());
  for (std::size_t rank = 0; rank < rules_.merges.size(); ++rank) {
    const auto& [left, right] = rules_.merges[rank];
    // A pair that is listed twice has its later rank, as in the library.
    merges_[key(id(left), id(right))] = {static_cast<std::int32_t>(rank), id(left + right)};
    const std::vector<std::int32_t> before = symbols(left), after = symbols(right);
    if (!before.empty() && !after.empty()) neighbours_.insert(key(before.back(), after.front()));
  }
  rules_.merges.clear();
}

const BpeModel::Merge* BpeModel::find(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::size_t BpeModel::unit_bytes(std::string_view text) const {
  return rules_.byte_level ? 1 : std::max<std::size_t>(character_bytes(text), 1);
}

void BpeModel::append_symbols(std::string_view unit, std::vector<std::int32_t>& symbols) const {
  const auto found = rules_.ids.find(unit);
  if (found != rules_.ids.end()) return symbols.push_back(found->second);
  const auto token_of = [&](char byte) {
    return rules_.byte_tokens[static_cast<unsigned char>(byte)];
  };
  if (rules_.byte_fallback &&
      std::all_of(unit.begin(), unit.end(), [&](char byte) { return token_of(byte) >= 0; })) {
    for (const char byte : unit) symbols.push_back(token_of(byte));
  } else if (rules_.unknown >= 0) {
    if (rules_.fuse_unknown && !symbols.empty() && symbols.back() == rules_.unknown) return;
    symbols.push_back(rules_.unknown);
  }
}

std::vector<std::int32_t> BpeModel::symbols_of(std::string_view text) const {
  std::vector<std::int32_t> symbols;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = unit_bytes(text.substr(at));
    append_symbols(text.substr(at, bytes), symbols);
    at += bytes;
  }
  return symbols;
}

void BpeModel::encode(std::string_view word, WordCache& cache,
                      std::vector<std::int64_t>& tokens) const {
  if (rules_.whole_words) {
    const auto found = rules_.ids.find(word);
    if (found != rules_.ids.end()) return tokens.push_back(found->second);
  }
  if (word.size() <= kLongWord) return encode_between_borders(word, cache, tokens);
  std::size_t begin = 0;
  std::int32_t last = -1;
  std::vector<std::int32_t> unit;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes = unit_bytes(word.substr(at));
    unit.clear();
    append_symbols(word.substr(at, bytes), unit);
    const bool fused = rules_.fuse_unknown && last == rules_.unknown;
    if (!unit.empty() && last >= 0 && !fused && !neighbours_.contains(key(last, unit.front()))) {
      encode_between_borders(word.substr(begin, at - begin), cache, tokens);
      begin = at;
    }
    if (!unit.empty()) last = unit.back();
    at += bytes;
  }
  encode_between_borders(word.substr(begin), cache, tokens);
}

void BpeModel::encode_between_borders(std::string_view part, WordCache& cache,
                                      std::vector<std::int64_t>& tokens) const {
  const auto known = cache.find(part);
  if (known != cache.end()) {
    tokens.insert(tokens.end(), known->second.begin(), known->second.end());
    return;
  }
  const std::vector<std::int32_t> merged = Merging(*this, symbols_of(part)).run();
  tokens.insert(tokens.end(), merged.begin(), merged.end());
  if (part.size() <= kLongWord && cache.size() < kRememberedWords) cache.emplace(part, merged);
}

namespace {

std::string quoted(const nlohmann::json& value) { return excerpt(json_text(value)); }

// "a b" in older files, ["a", "b"] in newer ones.
std::array<std::string, 2> read_merge(const nlohmann::json& merge, const JsonPart& place) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const std::string both = merge.get<std::string>();
    const std::size_t space = both.find(' ');
    if (space != std::string::npos) return {both.substr(0, space), both.substr(space + 1)};
  }
  place.refuse("pairs of tokens", quoted(merge));
}

void read_vocabulary(const JsonPart& vocab, BpeRules& rules) {
  if (!vocab.value().is_object()) vocab.refuse("tokens and their numbers", "something else");
  rules.byte_tokens.fill(-1);
  rules.ids.reserve(vocab.value().size());
  for (const auto& [name, number] : vocab.value().items()) {
    const auto id = static_cast<std::int32_t>(vocab.member(name).number(0, INT32_MAX));
    if (byte_of(name) >= 0) rules.byte_tokens[byte_of(name)] = id;
    if (!rules.byte_level) {
      rules.ids[name] = id;
    } else if (const auto bytes = spelled_bytes(name)) {
      rules.ids[*bytes] = id;
    }
  }
}

void read_merges(const JsonPart& merges, BpeRules& rules) {
  if (!merges.value().is_array()) merges.refuse("a list of pairs", merges.value().type_name());
  for (const nlohmann::json& merge : merges.value()) {
    std::array<std::string, 2> pair = read_merge(merge, merges);
    if (rules.byte_level) {
      for (std::string& half : pair) {
        const auto bytes = spelled_bytes(half);
        if (!bytes) merges.refuse("tokens that spell bytes", half);
        half = *bytes;
      }
    }
    for (const std::string& token : {pair[0], pair[1], pair[0] + pair[1]})
      if (!rules.ids.contains(token)) merges.refuse("tokens of the vocabulary", quoted(merge));
    rules.merges.push_back(std::move(pair));
  }
}

void refuse_unless_empty(const JsonPart& part) {
  const nlohmann::json& value = part.value();
  const bool none = value.is_null() || value == "" || value == 0;
  if (!none) part.refuse("none", part.quoted());
}

}  // namespace

BpeRules read_bpe_rules(const JsonPart& model, bool byte_level) {
  const std::string type = model.text("type", "BPE");  // older files omit it
  if (type != "BPE") model.refuse("BPE", type);
  for (const char* option : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    refuse_unless_empty(model.member(option));
  BpeRules rules{.byte_level = byte_level,
                 .whole_words = model.flag("ignore_merges", false),
                 .fuse_unknown = model.flag("fuse_unk", false),
                 .byte_fallback = model.flag("byte_fallback", false)};
  read_vocabulary(model.member("vocab"), rules);
  read_merges(model.member("merges"), rules);
  const JsonPart unknown = model.member("unk_token");
  if (!unknown.is_null()) {
    const JsonPart id = model.member("vocab").member(unknown.text());
    if (id.is_null()) unknown.refuse("a token of the vocabulary", unknown.text());
    rules.unknown = static_cast<std::int32_t>(id.number(0, INT32_MAX));
  }
  return rules;
}

}  // namespace strata
