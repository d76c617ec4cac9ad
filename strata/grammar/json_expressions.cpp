#include "strata/grammar/json_expressions.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "strata/base/error_source.h"
#include "strata/base/json_text.h"
#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/grammar/regex.h"

namespace strata {
namespace {

constexpr ErrorSource kJsonErrors{"grammar.json"};
constexpr std::size_t kMaxKey = 200;  // characters of a property name, with additionalProperties

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) throw kJsonErrors.user("", "a key is not UTF-8", "UTF-8", quote(text));
    characters += first_character(text);
    text.remove_prefix(bytes);
  }
  return characters;
}

// Characters that a string contains as escapes only.
const CharacterSet& escaped_characters() {
  static const CharacterSet kEscaped({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return kEscaped;
}

}  // namespace

JsonExpressions::JsonExpressions(Grammar& grammar)
    : grammar_(grammar), space_(read_regex(grammar, "(?: |\\n{1,2}[ \\t]{0,20})?")) {}

JsonExpressions::Expression JsonExpressions::character(const CharacterSet& set) {
  std::vector<Expression> parts = {grammar_.characters(set.without(escaped_characters()))};
  for (const CharacterRange& range : escaped_characters().ranges())
    for (char32_t c = range.first; c <= range.last; ++c) {
      if (!set.contains(c)) continue;
      const std::string escaped = nlohmann::json(std::string(1, static_cast<char>(c))).dump();
      parts.push_back(grammar_.text(std::string_view(escaped).substr(1, escaped.size() - 2)));
    }
  return grammar_.choice(parts);
}

JsonExpressions::Expression JsonExpressions::string(std::uint32_t least, std::uint32_t most) {
  if (!free_character_) {
    // Halves of a surrogate pair stand together.
    constexpr const char* kEscape =
        R"(\\(?:["\\/bfnrt]|u(?:[0-9a-cA-Ce-fE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})"
        R"(|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})))";
    free_character_ = grammar_.choice(
        {grammar_.characters(escaped_characters().complement()), read_regex(grammar_, kEscape)});
  }
  return quoted(grammar_.repeat(*free_character_, least, most));
}

JsonExpressions::Expression JsonExpressions::quoted(Expression contents) {
  return grammar_.sequence({grammar_.text("\""), contents, grammar_.text("\"")});
}

// Escapes other than the shortest ones are left out: they could spell one of the contents.
JsonExpressions::Expression JsonExpressions::string_except(std::vector<std::string> contents) {
  if (contents.empty()) return string();
  std::vector<std::u32string> sorted;
  for (const std::string& content : contents) {
    sorted.push_back(characters_of(content));
    if (sorted.back().size() > kMaxKey)
      throw kJsonErrors.user(quote(content), "a property name is too long for additionalProperties",
                             "at most " + std::to_string(kMaxKey) + " characters",
                             std::to_string(sorted.back().size()),
                             "set additionalProperties to false");
  }
  std::ranges::sort(sorted);
  sorted.erase(std::ranges::unique(sorted).begin(), sorted.end());
  return quoted(other_contents(sorted, 0));
}

// `contents`: with one beginning of `depth` characters, which the text has, too.
JsonExpressions::Expression JsonExpressions::other_contents(
    const std::vector<std::u32string>& contents, std::size_t depth) {
  if (!rest_) {
    rest_ = grammar_.declare("rest of a string");
    grammar_.define(*rest_, grammar_.repeat(character(CharacterSet::all()), 0));
  }
  std::vector<Expression> parts;
  std::vector<CharacterRange> heads;
  std::vector<std::u32string> group;
  bool ends = false;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    if (contents[i].size() == depth) {
      ends = true;
      continue;
    }
    const char32_t head = contents[i][depth];
    group.push_back(contents[i]);
    const bool last = i + 1 == contents.size() || contents[i + 1][depth] != head;
    if (!last) continue;
    heads.push_back({head, head});
    parts.push_back(grammar_.sequence(
        {character(CharacterSet({{head, head}})), other_contents(group, depth + 1)}));
    group.clear();
  }
  if (!ends) parts.push_back(grammar_.empty());
  parts.push_back(grammar_.sequence(
      {character(CharacterSet(std::move(heads)).complement()), grammar_.call(*rest_)}));
  return grammar_.choice(parts);
}

JsonExpressions::Expression JsonExpressions::number() {
  return read_regex(grammar_, "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?");
}

JsonExpressions::Expression JsonExpressions::boolean() {
  return grammar_.choice({grammar_.text("true"), grammar_.text("false")});
}

JsonExpressions::Expression JsonExpressions::enclosed(char open, std::optional<Expression> parts,
                                                      char close) {
  std::vector<Expression> all = {grammar_.text(std::string_view(&open, 1)), space_};
  if (parts) all.insert(all.end(), {*parts, space_});
  all.push_back(grammar_.text(std::string_view(&close, 1)));
  return grammar_.sequence(all);
}

JsonExpressions::Expression JsonExpressions::member(Expression key, Expression value) {
  return grammar_.sequence({key, grammar_.text(":"), space_, value});
}

JsonExpressions::Expression JsonExpressions::next(Expression part) {
  return grammar_.sequence({grammar_.text(","), space_, part});
}

JsonExpressions::Expression JsonExpressions::any_object() {
  const Expression part = member(string(), any_value());
  const Expression parts = grammar_.sequence({part, grammar_.repeat(next(part), 0)});
  return grammar_.choice({enclosed('{', std::nullopt, '}'), enclosed('{', parts, '}')});
}

JsonExpressions::Expression JsonExpressions::any_array() {
  const Expression part = any_value();
  const Expression parts = grammar_.sequence({part, grammar_.repeat(next(part), 0)});
  return grammar_.choice({enclosed('[', std::nullopt, ']'), enclosed('[', parts, ']')});
}

Grammar::Rule JsonExpressions::value_rule() {
  if (!value_) {
    value_ = grammar_.declare("JSON value");
    grammar_.define(*value_, grammar_.choice({string(), number(), boolean(), null(), any_object(),
                                              any_array()}));
  }
  return *value_;
}

JsonExpressions::Expression JsonExpressions::value(const nlohmann::ordered_json& value) {
  if (!value.is_structured()) return grammar_.text(json_text(value));
  std::vector<Expression> parts;
  const auto add = [&](Expression part) { parts.push_back(parts.empty() ? part : next(part)); };
  for (const auto& [key, each] : value.items())
    add(value.is_object() ? member(this->value(nlohmann::ordered_json(key)), this->value(each))
                          : this->value(each));
  const std::optional<Expression> all =
      parts.empty() ? std::nullopt : std::optional(grammar_.sequence(parts));
  return value.is_object() ? enclosed('{', all, '}') : enclosed('[', all, ']');
}

}  // namespace strata
