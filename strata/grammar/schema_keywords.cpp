#include "strata/grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "strata/base/json_text.h"
#include "strata/base/user_text.h"
#include "strata/grammar/json_schema.h"

namespace strata {
namespace {

constexpr double kExactDoubles = 9007199254740992.0;

const std::map<std::string, KeywordSubject>& subjects() {
  using enum KeywordSubject;
  static const std::map<std::string, KeywordSubject> kSubjects = {{"title", kNothing},
                                                                  {"description", kNothing},
                                                                  {"default", kNothing},
                                                                  {"examples", kNothing},
                                                                  {"example", kNothing},
                                                                  {"deprecated", kNothing},
                                                                  {"readOnly", kNothing},
                                                                  {"writeOnly", kNothing},
                                                                  {"$schema", kNothing},
                                                                  {"$comment", kNothing},
                                                                  {"$defs", kNothing},
                                                                  {"definitions", kNothing},
                                                                  {"discriminator", kNothing},
                                                                  {"contentEncoding", kNothing},
                                                                  {"contentMediaType", kNothing},
                                                                  {"type", kAny},
                                                                  {"nullable", kAny},
                                                                  {"enum", kAny},
                                                                  {"const", kAny},
                                                                  {"anyOf", kAny},
                                                                  {"oneOf", kAny},
                                                                  {"allOf", kAny},
                                                                  {"$ref", kAny},
                                                                  {"minLength", kString},
                                                                  {"maxLength", kString},
                                                                  {"pattern", kString},
                                                                  {"format", kString},
                                                                  {"minimum", kNumber},
                                                                  {"maximum", kNumber},
                                                                  {"exclusiveMinimum", kNumber},
                                                                  {"exclusiveMaximum", kNumber},
                                                                  {"properties", kObject},
                                                                  {"required", kObject},
                                                                  {"additionalProperties", kObject},
                                                                  {"minProperties", kObject},
                                                                  {"maxProperties", kObject},
                                                                  {"items", kArray},
                                                                  {"prefixItems", kArray},
                                                                  {"minItems", kArray},
                                                                  {"maxItems", kArray}};
  return kSubjects;
}

std::string short_text(const SchemaJson& value) { return excerpt(json_text(value)); }

const SchemaJson* find(const SchemaJson& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

double bound_of(const SchemaJson& value, const std::string& place, const char* keyword) {
  const double number = value.is_number() ? value.get<double>() : NAN;
  const bool fits =
      !value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  if (!fits || !(std::abs(number) <= 0x1p63))
    throw kSchemaErrors.user(place + "/" + keyword, "the bound cannot be used",
                             "a number of 64 bits", short_text(value));
  return number;
}

// Narrows the range to the numbers that a bound leaves.
void apply_bound(WholeRange& range, const SchemaJson& schema, const char* keyword, bool is_least,
                 bool exclusive, const std::string& place) {
  const SchemaJson* value = find(schema, keyword);
  if (value == nullptr) return;
  const double number = bound_of(*value, place, keyword);
  const double rounded = is_least ? std::ceil(number) : std::floor(number);
  std::int64_t whole = 0;
  if (value->is_number_integer())
    whole = value->get<std::int64_t>();
  else if (std::abs(number) <= kExactDoubles)
    whole = static_cast<std::int64_t>(rounded);
  else
    throw kSchemaErrors.user(place + "/" + keyword, "the bound cannot be used",
                             "a number that is written without an exponent", short_text(*value));
  if (exclusive && rounded == number) {
    if (whole == (is_least ? INT64_MAX : INT64_MIN))
      range.is_empty = true;
    else
      whole += is_least ? 1 : -1;
  }
  if (is_least)
    range.least = std::max(range.least.value_or(whole), whole);
  else
    range.most = std::min(range.most.value_or(whole), whole);
}

SchemaJson type_list(const SchemaJson& type) {
  return type.is_array() ? type : SchemaJson::array({type});
}

std::set<SchemaJson> set_of(const SchemaJson& list) { return {list.begin(), list.end()}; }

// The parts of `a` that `b` has, or with `others` those that it does not have; each once.
SchemaJson selected(const SchemaJson& a, const SchemaJson& b, bool others) {
  const std::set<SchemaJson> in_b = set_of(b);
  std::set<SchemaJson> seen;
  SchemaJson parts = SchemaJson::array();
  for (const SchemaJson& each : a)
    if (in_b.contains(each) != others && seen.insert(each).second) parts.push_back(each);
  return parts;
}

SchemaJson united(SchemaJson a, const SchemaJson& b) {
  for (const SchemaJson& each : selected(b, a, true)) a.push_back(each);
  return a;
}

// An integer is a number.
SchemaJson joined_types(const SchemaJson& a, const SchemaJson& b) {
  const auto widened = [](const SchemaJson& type) {
    SchemaJson list = type_list(type);
    return set_of(list).contains("number") ? united(std::move(list), {"integer"}) : list;
  };
  return selected(widened(a), widened(b), false);
}

SchemaJson joined_properties(const SchemaJson& a, const SchemaJson& b) {
  std::map<std::string_view, const SchemaJson*> in_b;
  for (const auto& [name, schema] : b.items()) in_b.emplace(name, &schema);
  SchemaJson both = SchemaJson::object();
  auto& members = both.get_ref<SchemaJson::object_t&>();  // its own insertion seeks the name
  for (const auto& [name, schema] : a.items()) {
    const auto found = in_b.find(name);
    const bool differs = found != in_b.end() && *found->second != schema;
    members.push_back(
        {name,
         differs ? SchemaJson{{"allOf", SchemaJson::array({schema, *found->second})}} : schema});
    if (found != in_b.end()) in_b.erase(found);
  }
  for (const auto& [name, schema] : b.items())
    if (in_b.contains(name)) members.push_back({name, schema});
  return both;
}

// Whether a schema that restricts further members lacks a member of the other.
bool restricts(const SchemaJson& schema, const SchemaJson& other) {
  const SchemaJson* additional = find(schema, "additionalProperties");
  const SchemaJson* members = find(other, "properties");
  if (additional == nullptr || *additional == true || members == nullptr) return false;
  std::set<std::string> names;
  if (const SchemaJson* own = find(schema, "properties"))
    for (const auto& [name, value] : own->items()) names.insert(name);
  for (const auto& [name, value] : members->items())
    if (!names.contains(name)) return true;
  return false;
}

// Whether "items" of the other schema is about items that "prefixItems" of this one lists.
bool overlaps(const SchemaJson& schema, const SchemaJson& other) {
  const SchemaJson* items = find(other, "items");
  return schema.contains("prefixItems") && !other.contains("prefixItems") && items != nullptr &&
         *items != true;
}

// "nullable" adds null to "type"; without "type" it has no effect.
SchemaJson without_nullable(SchemaJson schema) {
  const SchemaJson* nullable = find(schema, "nullable");
  if (nullable == nullptr) return schema;
  if (*nullable == true && schema.contains("type"))
    schema["type"] = united(type_list(schema["type"]), {"null"});
  schema.erase("nullable");
  return schema;
}

SchemaJson joined_keyword(const std::string& keyword, const SchemaJson& a, const SchemaJson& b,
                          const std::string& place) {
  if (a == b) return a;
  if (keyword == "type") return joined_types(a, b);
  if (keyword == "properties" && a.is_object() && b.is_object()) return joined_properties(a, b);
  if (keyword == "required" && a.is_array() && b.is_array()) return united(a, b);
  if (keyword == "enum" && a.is_array() && b.is_array()) return selected(a, b, false);
  if (keyword == "items") return {{"allOf", SchemaJson::array({a, b})}};
  if (a.is_number() && b.is_number()) {
    if (keyword.starts_with("min") || keyword == "exclusiveMinimum") return a < b ? b : a;
    if (keyword.starts_with("max") || keyword == "exclusiveMaximum") return a < b ? a : b;
  }
  throw kSchemaErrors.user(place, "two values of '" + keyword + "' cannot be joined",
                           "equal values", short_text(a) + " and " + short_text(b));
}

}  // namespace

void check_schema_limits(const SchemaJson& value, std::size_t values) {
  const bool is_wide = value.is_object() && value.size() > kMaxSchemaMembers;
  if (!is_wide && values <= kMaxSchemaValues) return;
  throw kSchemaErrors.user("", "the schema is too large",
                           std::to_string(kMaxSchemaMembers) + " members of an object, " +
                               std::to_string(kMaxSchemaValues) + " values",
                           "more");
}

KeywordSubject subject_of(const std::string& keyword, const SchemaJson& value,
                          const std::string& place) {
  const auto found = subjects().find(keyword);
  if (found != subjects().end()) return found->second;
  if (keyword.starts_with("x-")) return KeywordSubject::kNothing;
  if (keyword == "$id" && place == "#") return KeywordSubject::kNothing;
  if (keyword == "uniqueItems" && value == false) return KeywordSubject::kNothing;
  throw kSchemaErrors.user(place + "/" + keyword, "the keyword is not supported",
                           "a schema without it", quote(keyword));
}

bool asserts(const SchemaJson& schema, const std::string& place) {
  for (const auto& [keyword, value] : schema.items())
    if (subject_of(keyword, value, place) != KeywordSubject::kNothing) return true;
  return false;
}

bool has_type(const SchemaJson& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "number") return value.is_number();
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::trunc(value.get<double>()));
}

std::optional<std::vector<std::string>> types_of(const SchemaJson& schema,
                                                 const std::string& place) {
  static const std::vector<std::string> kTypes = {"string", "number", "integer", "boolean",
                                                  "null",   "object", "array"};
  std::vector<std::string> types;
  if (const SchemaJson* type = find(schema, "type")) {
    for (const SchemaJson& each : type_list(*type)) {
      if (!each.is_string() || std::ranges::count(kTypes, each.get<std::string>()) == 0)
        throw kSchemaErrors.user(place + "/type", "the type is not known",
                                 "string, number, integer, boolean, null, object or array",
                                 short_text(each));
      if (std::ranges::count(types, each.get<std::string>()) == 0) types.push_back(each);
    }
  } else {
    static const std::map<KeywordSubject, const char*> kOfSubjects = {
        {KeywordSubject::kString, "string"},
        {KeywordSubject::kNumber, "number"},
        {KeywordSubject::kObject, "object"},
        {KeywordSubject::kArray, "array"}};
    for (const auto& [keyword, value] : schema.items()) {
      const auto found = kOfSubjects.find(subject_of(keyword, value, place));
      if (found != kOfSubjects.end() && std::ranges::count(types, found->second) == 0)
        types.emplace_back(found->second);
    }
    if (types.empty()) return std::nullopt;
  }
  if (std::ranges::count(types, "number") > 0) std::erase(types, "integer");
  const SchemaJson* nullable = find(schema, "nullable");
  if (nullable != nullptr && *nullable == true && std::ranges::count(types, "null") == 0)
    types.emplace_back("null");
  return types;
}

std::uint32_t count_of(const SchemaJson& schema, const char* keyword, std::uint32_t otherwise,
                       const std::string& place) {
  constexpr double kMost = 1'000'000;
  const SchemaJson* value = find(schema, keyword);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : -1;
  if (!(number >= 0 && number <= kMost && number == std::trunc(number)))
    throw kSchemaErrors.user(place + "/" + keyword, "the count cannot be used",
                             "a whole number from 0 to 1000000", short_text(*value));
  return static_cast<std::uint32_t>(number);
}

WholeRange whole_range(const SchemaJson& schema, const std::string& place) {
  WholeRange range;
  apply_bound(range, schema, "minimum", true, false, place);
  apply_bound(range, schema, "exclusiveMinimum", true, true, place);
  apply_bound(range, schema, "maximum", false, false, place);
  apply_bound(range, schema, "exclusiveMaximum", false, true, place);
  return range;
}

SchemaJson joined(const SchemaJson& a, const SchemaJson& b, const std::string& place) {
  for (const SchemaJson* each : {&a, &b}) {
    if (*each == false) return false;
    if (!each->is_object() && !each->is_boolean())
      throw kSchemaErrors.user(place, "the value is no schema", "an object or a boolean",
                               short_text(*each));
  }
  if (a == true) return b;
  if (b == true) return a;
  if (restricts(a, b) || restricts(b, a))
    throw kSchemaErrors.user(place, "schemas with additionalProperties cannot be joined",
                             "equal properties", "a property that the other schema does not list");
  if (overlaps(a, b) || overlaps(b, a))
    throw kSchemaErrors.user(place, "'prefixItems' cannot be joined with 'items'",
                             "both in one schema", "'items' of another schema");
  SchemaJson both = without_nullable(a);
  const SchemaJson other = without_nullable(b);
  for (const auto& [keyword, value] : other.items()) {
    if (!both.contains(keyword) || subject_of(keyword, value, place) == KeywordSubject::kNothing)
      both[keyword] = value;
    else
      both[keyword] = joined_keyword(keyword, both[keyword], value, place);
  }
  return both;
}

}  // namespace strata
