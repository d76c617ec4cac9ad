#include "strata/grammar/json_schema.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/json_text.h"
#include "strata/base/user_text.h"
#include "strata/grammar/json_expressions.h"
#include "strata/grammar/number_range.h"
#include "strata/grammar/regex.h"
#include "strata/grammar/schema_keywords.h"

namespace strata {
namespace {

using Expression = Grammar::Expression;

constexpr int kMaxSchemaDepth = 200;           // with joined schemas, which may refer to themselves
constexpr int kMaxSchemas = 50'000;            // that are read
constexpr std::size_t kMaxCopied = 1'000'000;  // values of schemas that are joined, and of places
constexpr std::uint32_t kMany = Grammar::kUnbounded;

std::size_t values_of(const SchemaJson& value) {
  std::size_t values = 1;
  if (value.is_structured())
    for (const SchemaJson& each : value) values += values_of(each);
  return values;
}

void check_limits(const SchemaJson& root) {
  std::vector<const SchemaJson*> values = {&root};
  for (std::size_t i = 0; i < values.size(); ++i) {
    check_schema_limits(*values[i], values.size());
    if (values[i]->is_structured())
      for (const SchemaJson& each : *values[i]) values.push_back(&each);
  }
}

class SchemaReader {
 public:
  SchemaReader(Grammar& grammar, const SchemaJson& root)
      : grammar_(grammar), root_(root), json_(grammar) {}

  Expression read() {
    check_limits(root_);
    const Expression root = grammar_.call(rule_of("#"));
    while (!waiting_.empty()) {
      const auto [pointer, waiting] = std::move(waiting_.back());
      waiting_.pop_back();
      grammar_.define(waiting, schema(resolved(pointer, "#"), pointer, 0));
    }
    return root;
  }

 private:
  [[noreturn]] static void refuse(const std::string& place, const std::string& what,
                                  const std::string& expected, const SchemaJson& got) {
    throw kSchemaErrors.user(place, what, expected, excerpt(json_text(got)));
  }

  // References
  Grammar::Rule rule_of(const std::string& pointer) {
    const auto [found, is_new] = rules_.try_emplace(pointer);
    if (is_new) {
      found->second = grammar_.declare(pointer);
      waiting_.emplace_back(pointer, found->second);
    }
    return found->second;
  }

  static std::string reference(const SchemaJson& schema, const std::string& place) {
    const SchemaJson& value = schema["$ref"];
    if (!value.is_string() || !(value == "#" || value.get<std::string>().starts_with("#/")))
      refuse(place + "/$ref", "the reference is not supported", "a place of this schema, #/...",
             value);
    std::string pointer;
    const std::string text = value.get<std::string>();
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto digit = [&](std::size_t at) {
        return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
      };
      if (text[i] == '%' && digit(i + 1) && digit(i + 2)) {
        pointer += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        pointer += text[i];
      }
    }
    return pointer;
  }

  const SchemaJson& resolved(const std::string& pointer, const std::string& place) const {
    try {
      const SchemaJson::json_pointer steps(pointer.substr(1));
      if (root_.contains(steps)) return root_.at(steps);
    } catch (const nlohmann::json::exception&) {  // no pointer
    }
    throw kSchemaErrors.user(place + "/$ref", "the reference has no target",
                             "a place of this schema", quote(pointer));
  }

  // Counts a schema that is read, and the values and bytes that are copied for it.
  void count(const std::string& place, int depth, std::size_t copied = 0) {
    copied_ += copied + place.size() / 64;
    if (depth <= kMaxSchemaDepth && ++schemas_ <= kMaxSchemas && copied_ <= kMaxCopied) return;
    throw kSchemaErrors.user(
        excerpt(place), "the schema is too large, or joins itself with another",
        std::to_string(kMaxSchemaDepth) + " levels, " + std::to_string(kMaxSchemas) + " schemas, " +
            std::to_string(kMaxCopied) + " values of joined schemas",
        "more");
  }

  SchemaJson join(const SchemaJson& a, const SchemaJson& b, const std::string& place, int depth) {
    count(place, depth, values_of(a) + values_of(b));
    return joined(a, b, place);
  }

  // A schema, by what it is made of.
  Expression schema(const SchemaJson& schema, const std::string& place, int depth) {
    count(place, depth);
    if (schema == true) return json_.any_value();
    if (schema == false) return grammar_.nothing();
    if (!schema.is_object())
      refuse(place, "the value is no schema", "an object or a boolean", schema);
    for (const auto& [keyword, value] : schema.items()) subject_of(keyword, value, place);
    if (schema.contains("$ref")) return referred(schema, place, depth);
    if (schema.contains("allOf")) return joined_parts(schema, place, depth);
    for (const char* keyword : {"anyOf", "oneOf"})
      if (schema.contains(keyword)) return alternatives(schema, keyword, place, depth);
    if (schema.contains("enum") || schema.contains("const")) return values(schema, place);
    const auto types = types_of(schema, place);
    if (!types) return json_.any_value();
    std::vector<Expression> parts;
    for (const std::string& type : *types) parts.push_back(typed(schema, type, place, depth));
    return grammar_.choice(parts);
  }

  SchemaJson without(const SchemaJson& schema, const char* keyword) {
    copied_ += values_of(schema);
    SchemaJson rest = schema;
    rest.erase(keyword);
    return rest;
  }

  Expression referred(const SchemaJson& schema, const std::string& place, int depth) {
    const std::string pointer = reference(schema, place);
    const SchemaJson rest = without(schema, "$ref");
    if (!asserts(rest, place)) {
      resolved(pointer, place);
      return grammar_.call(rule_of(pointer));
    }
    return this->schema(join(resolved(pointer, place), rest, place, depth), place, depth + 1);
  }

  static const SchemaJson& list(const SchemaJson& schema, const char* keyword,
                                const std::string& place) {
    const SchemaJson& value = schema[keyword];
    if (!value.is_array() || value.empty())
      refuse(place + "/" + keyword, "the value cannot be used", "a list of at least one part",
             value);
    return value;
  }

  Expression joined_parts(const SchemaJson& schema, const std::string& place, int depth) {
    SchemaJson all = without(schema, "allOf");
    for (const SchemaJson& part : list(schema, "allOf", place)) {
      if (!part.is_object() || !part.contains("$ref")) {
        all = join(all, part, place + "/allOf", depth);
        continue;
      }
      if (!asserts_object(all, place) && list(schema, "allOf", place).size() == 1)
        return this->schema(part, place + "/allOf/0", depth + 1);
      const std::string pointer = reference(part, place);
      all = join(all, join(resolved(pointer, place), without(part, "$ref"), place, depth),
                 place + "/allOf", depth);
    }
    return this->schema(all, place, depth + 1);
  }

  static bool asserts_object(const SchemaJson& schema, const std::string& place) {
    return !schema.is_object() || asserts(schema, place);
  }

  Expression alternatives(const SchemaJson& schema, const char* keyword, const std::string& place,
                          int depth) {
    const SchemaJson rest = without(schema, keyword);
    const bool alone = !asserts(rest, place);
    std::vector<Expression> parts;
    const SchemaJson& all = list(schema, keyword, place);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string inner = place + "/" + keyword + "/" + std::to_string(i);
      parts.push_back(this->schema(alone ? all[i] : with_reference(rest, all[i], inner, depth),
                                   inner, depth + 1));
    }
    return grammar_.choice(parts);
  }

  // Joins `rest` with a schema that may be a reference.
  SchemaJson with_reference(const SchemaJson& rest, const SchemaJson& part,
                            const std::string& place, int depth) {
    if (!part.is_object() || !part.contains("$ref") || !rest.contains("$ref"))
      return join(rest, part, place, depth);
    const SchemaJson& target = resolved(reference(part, place), place);
    return join(rest, join(target, without(part, "$ref"), place, depth), place, depth);
  }

  Expression values(const SchemaJson& schema, const std::string& place) {
    for (const auto& [keyword, value] : schema.items()) {
      const bool supported =
          keyword == "enum" || keyword == "const" || keyword == "type" || keyword == "nullable";
      if (!supported && subject_of(keyword, value, place) != KeywordSubject::kNothing)
        refuse(place + "/" + keyword, "the keyword is not supported together with enum and const",
               "a schema without it", value);
    }
    SchemaJson all = schema.contains("enum") ? list(schema, "enum", place) : SchemaJson::array();
    if (schema.contains("const")) {
      const SchemaJson& value = schema["const"];
      if (schema.contains("enum") && std::ranges::count(all, value) == 0) return grammar_.nothing();
      all = SchemaJson::array({value});
    }
    const auto types = types_of(schema, place);
    std::vector<Expression> parts;
    for (const SchemaJson& value : all)
      if (!types || std::ranges::any_of(
                        *types, [&](const std::string& type) { return has_type(value, type); }))
        parts.push_back(json_.value(value));
    return grammar_.choice(parts);
  }

  Expression typed(const SchemaJson& schema, const std::string& type, const std::string& place,
                   int depth) {
    if (type == "null") return json_.null();
    if (type == "boolean") return json_.boolean();
    if (type == "string") return string(schema, place);
    if (type == "object") return object(schema, place, depth);
    if (type == "array") return array(schema, place, depth);
    const bool whole = type == "integer";
    for (const char* bound : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
      if (!whole && schema.contains(bound))
        refuse(place + "/" + bound, "bounds are supported for integers only", "type integer",
               schema[bound]);
    if (!whole) return json_.number();
    const WholeRange range = whole_range(schema, place);
    return range.is_empty ? grammar_.nothing() : whole_numbers(grammar_, range.least, range.most);
  }

  Expression string(const SchemaJson& schema, const std::string& place) {
    const bool patterned = schema.contains("pattern"), formatted = schema.contains("format");
    const bool sized = schema.contains("minLength") || schema.contains("maxLength");
    if (patterned + formatted + sized > 1)
      throw kSchemaErrors.user(place, "the keywords are not supported together",
                               "one of pattern, format, and minLength with maxLength", "several");
    for (const char* keyword : {"pattern", "format"})
      if (schema.contains(keyword) && !schema[keyword].is_string())
        refuse(place + "/" + keyword, "the value cannot be used", "a text", schema[keyword]);
    if (!patterned && !formatted) {
      const std::uint32_t least = count_of(schema, "minLength", 0, place);
      const std::uint32_t most = count_of(schema, "maxLength", kMany, place);
      return most < least ? grammar_.nothing() : json_.string(least, most);
    }
    const std::string pattern =
        patterned ? schema["pattern"].get<std::string>() : format_pattern(schema["format"], place);
    const RegexUse use{.write = [&](const CharacterSet& set) { return json_.character(set); },
                       .whole = formatted,
                       .all_line_ends = true};
    try {
      return json_.quoted(read_regex(grammar_, pattern, use));
    } catch (const UserError& error) {
      throw UserError(located(error, place + "/pattern").text());
    }
  }

  struct Member {
    Expression member;
    bool required = false;
  };

  // Members in the order of "properties", then required ones that it does not list, then others.
  Expression object(const SchemaJson& schema, const std::string& place, int depth) {
    const std::vector<std::string> required = required_names(schema, place);
    const std::set<std::string> is_required(required.begin(), required.end());
    const SchemaJson none = SchemaJson::object();
    const SchemaJson& properties = schema.contains("properties") ? schema["properties"] : none;
    if (!properties.is_object())
      refuse(place + "/properties", "the value cannot be used", "an object", properties);
    const SchemaJson others = schema.contains("additionalProperties")
                                  ? schema["additionalProperties"]
                                  : SchemaJson(properties.empty());
    const Expression other_value = this->schema(others, place + "/additionalProperties", depth + 1);
    std::vector<std::string> names;
    std::vector<Member> members;
    for (const auto& [name, value] : properties.items()) {
      const Expression key = json_.value(name);  // refuses a long name before it becomes a place
      const Expression read = this->schema(value, place + "/properties/" + name, depth + 1);
      members.push_back({json_.member(key, read), is_required.contains(name)});
      names.push_back(name);
    }
    const std::set<std::string> listed(names.begin(), names.end());
    for (const std::string& name : required) {
      if (listed.contains(name)) continue;
      members.push_back({json_.member(json_.value(name), other_value), true});
      names.push_back(name);
    }
    std::optional<Expression> other;
    if (others != false) other = json_.member(json_.string_except(names), other_value);
    const auto least = count_of(schema, "minProperties", 0, place);
    const auto most = count_of(schema, "maxProperties", kMany, place);
    if (!members.empty() &&
        (least > required.size() || (most != kMany && (other || most < members.size()))))
      throw kSchemaErrors.user(place, "counts of members are supported only without properties",
                               "a schema without minProperties and maxProperties", "both");
    if (members.empty()) return repeated('{', other, least, most, '}');
    return braces(member_lists(members, other), members);
  }

  // Each once.
  static std::vector<std::string> required_names(const SchemaJson& schema,
                                                 const std::string& place) {
    std::vector<std::string> names;
    if (!schema.contains("required")) return names;
    const SchemaJson& required = schema["required"];
    const auto is_text = [](const SchemaJson& name) { return name.is_string(); };
    if (!required.is_array() || !std::ranges::all_of(required, is_text))
      refuse(place + "/required", "the value cannot be used", "a list of names", required);
    std::set<std::string> seen;
    for (const SchemaJson& name : required)
      if (seen.insert(name).second) names.push_back(name);
    return names;
  }

  Expression braces(Expression parts, const std::vector<Member>& members) {
    const Expression filled = json_.enclosed('{', parts, '}');
    const bool needed = std::ranges::any_of(members, &Member::required);
    return needed ? filled : grammar_.choice({json_.enclosed('{', std::nullopt, '}'), filled});
  }

  // At least one member. Which one is first decides which may follow.
  Expression member_lists(const std::vector<Member>& members, std::optional<Expression> other) {
    const Expression others = other ? grammar_.repeat(json_.next(*other), 0) : grammar_.empty();
    if (members.front().required) {
      std::vector<Expression> parts = {members.front().member};
      for (std::size_t i = 1; i < members.size(); ++i) parts.push_back(later(members[i]));
      parts.push_back(others);
      return grammar_.sequence(parts);
    }
    std::vector<Expression> lists;
    if (other) lists.push_back(grammar_.sequence({*other, others}));
    Expression rest = others;  // after member i
    for (std::size_t i = members.size(); i-- > 0;) {
      if (members[i].required) lists.clear();  // it must not be missing
      lists.push_back(grammar_.sequence({members[i].member, rest}));
      const Grammar::Rule rule = grammar_.declare("members");
      grammar_.define(rule, grammar_.sequence({later(members[i]), rest}));
      rest = grammar_.call(rule);
    }
    return grammar_.choice(lists);
  }

  Expression later(const Member& member) {
    const Expression next = json_.next(member.member);
    return member.required ? next : grammar_.optional(next);
  }

  // `least` to `most` equal parts within brackets.
  Expression repeated(char open, std::optional<Expression> part, std::uint32_t least,
                      std::uint32_t most, char close) {
    if (most < least) return grammar_.nothing();
    std::vector<Expression> ways;
    if (least == 0) ways.push_back(json_.enclosed(open, std::nullopt, close));
    if (part && most > 0) {
      const Expression more = grammar_.repeat(json_.next(*part), least > 0 ? least - 1 : 0,
                                              most == kMany ? most : most - 1);
      ways.push_back(json_.enclosed(open, grammar_.sequence({*part, more}), close));
    }
    return grammar_.choice(ways);
  }

  Expression array(const SchemaJson& schema, const std::string& place, int depth) {
    const auto least = count_of(schema, "minItems", 0, place);
    const auto most = count_of(schema, "maxItems", kMany, place);
    if (schema.contains("items") && schema["items"].is_array())
      refuse(place + "/items", "a list of schemas is not supported", "prefixItems",
             schema["items"]);
    const SchemaJson items = schema.contains("items") ? schema["items"] : SchemaJson(true);
    std::optional<Expression> item;
    if (items != false) item = this->schema(items, place + "/items", depth + 1);
    if (!schema.contains("prefixItems")) return repeated('[', item, least, most, ']');
    const SchemaJson& prefix = list(schema, "prefixItems", place);
    const auto count = static_cast<std::uint32_t>(prefix.size());
    if (most < least) return grammar_.nothing();
    // From the last item to the first; an item may be missing from `least` on.
    Expression rest = grammar_.empty();
    if (item && most > count)
      rest = grammar_.repeat(json_.next(*item), least > count ? least - count : 0,
                             most == kMany ? most : most - count);
    else if (least > count)
      return grammar_.nothing();
    for (std::uint32_t i = std::min(count, most); i > 0; --i) {
      const Expression part =
          this->schema(prefix[i - 1], place + "/prefixItems/" + std::to_string(i - 1), depth + 1);
      rest = grammar_.sequence({i == 1 ? part : json_.next(part), rest});
      if (i > 1 && i > least) rest = grammar_.optional(rest);
    }
    if (most == 0) return json_.enclosed('[', std::nullopt, ']');
    const Expression filled = json_.enclosed('[', rest, ']');
    return least > 0 ? filled : grammar_.choice({json_.enclosed('[', std::nullopt, ']'), filled});
  }

  Grammar& grammar_;
  const SchemaJson& root_;
  JsonExpressions json_;
  int schemas_ = 0;
  std::size_t copied_ = 0;
  std::map<std::string, Grammar::Rule> rules_;                  // by pointer
  std::vector<std::pair<std::string, Grammar::Rule>> waiting_;  // to be read
};

}  // namespace

Grammar::Expression read_json_schema(Grammar& grammar, const nlohmann::ordered_json& schema) {
  return SchemaReader(grammar, schema).read();
}

Grammar::Expression json_object(Grammar& grammar) { return JsonExpressions(grammar).any_object(); }

}  // namespace strata
