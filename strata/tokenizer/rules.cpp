#include "strata/tokenizer/rules.h"

#include <nlohmann/json.hpp>

#include "strata/tokenizer/decode.h"

namespace strata {
namespace {

std::string quoted(const nlohmann::json& value) {
  return excerpt(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// "a b" in older files, ["a", "b"] in later ones.
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
  const std::string type = model.text("type", "BPE");  // older files leave it out
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

std::vector<std::int64_t> read_prefix(const JsonPart& post_processor) {
  std::vector<std::int64_t> prefix;
  for (const JsonPart& step : steps_of(post_processor, "processors")) {
    const std::string type = type_of(step);
    if (type == "ByteLevel") continue;  // moves offsets, which nobody reads
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

}  // namespace strata
