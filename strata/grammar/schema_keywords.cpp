#include "strata/grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "strata/base/json_text.h"
#include "strata/base/user_text.h"

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
  if (!(std::abs(number) <= 0x1p63))
    throw kSchemaErrors.user(place + "/" + keyword, "the bound cannot be used",
                             "a number of 64 bits", short_text(value));
  return number;
}

// The whole numbers from a bound on. `up`: above it.
std::optional<std::int64_t> whole_bound(const SchemaJson& schema, const char* keyword, bool up,
                                        bool exclusive, const std::string& place) {
  const SchemaJson* value = find(schema, keyword);
  if (value == nullptr) return std::nullopt;
  const double number = bound_of(*value, place, keyword);
  std::int64_t whole = 0;
  bool is_bound = true;
  if (value->is_number_integer()) {
    if (value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{INT64_MAX})
      whole = INT64_MAX;
    else
      whole = value->get<std::int64_t>();
  } else if (std::abs(number) > kExactDoubles) {
    throw kSchemaErrors.user(place + "/" + keyword, "the bound cannot be used",
                             "a number that is written without an exponent", short_text(*value));
  } else {
    const double rounded = up ? std::ceil(number) : std::floor(number);
    is_bound = rounded == number;
    whole = static_cast<std::int64_t>(rounded);
  }
  if (exclusive && is_bound) {
    if (whole == (up ? INT64_MAX : INT64_MIN)) return whole;
    whole += up ? 1 : -1;
  }
  return whole;
}

SchemaJson type_list(const SchemaJson& type) {
  return type.is_array() ? type : SchemaJson::array({type});
}

SchemaJson joined_types(const SchemaJson& a, const SchemaJson& b) {
  SchemaJson both = SchemaJson::array();
  const SchemaJson list_a = type_list(a), list_b = type_list(b);
  for (const SchemaJson& each : list_a)
    if (std::ranges::count(list_b, each) > 0 ||
        (each == "integer" && std::ranges::count(list_b, "number") > 0))
      both.push_back(each);
  if (std::ranges::count(list_a, "number") > 0 && std::ranges::count(list_b, "integer") > 0 &&
      std::ranges::count(both, "integer") == 0)
    both.push_back("integer");
  return both;
}

SchemaJson joined_properties(const SchemaJson& a, const SchemaJson& b) {
  SchemaJson both = a;
  for (const auto& [name, schema] : b.items())
    both[name] = both.contains(name) && both[name] != schema
                     ? SchemaJson{{"allOf", SchemaJson::array({both[name], schema})}}
                     : schema;
  return both;
}

SchemaJson united(const SchemaJson& a, const SchemaJson& b) {
  SchemaJson both = a;
  for (const SchemaJson& each : b)
    if (std::ranges::count(both, each) == 0) both.push_back(each);
  return both;
}

SchemaJson common(const SchemaJson& a, const SchemaJson& b) {
  SchemaJson both = SchemaJson::array();
  for (const SchemaJson& each : a)
    if (std::ranges::count(b, each) > 0) both.push_back(each);
  return both;
}

// Whether a schema that restricts further members lacks a member of the other.
bool restricts(const SchemaJson& schema, const SchemaJson& other) {
  const SchemaJson* additional = find(schema, "additionalProperties");
  const SchemaJson* members = find(other, "properties");
  if (additional == nullptr || *additional == true || members == nullptr) return false;
  const SchemaJson* own = find(schema, "properties");
  for (const auto& [name, value] : members->items())
    if (own == nullptr || !own->contains(name)) return true;
  return false;
}

SchemaJson joined_keyword(const std::string& keyword, const SchemaJson& a, const SchemaJson& b,
                          const std::string& place) {
  if (a == b) return a;
  if (keyword == "type") return joined_types(a, b);
  if (keyword == "properties" && a.is_object() && b.is_object()) return joined_properties(a, b);
  if (keyword == "required" && a.is_array() && b.is_array()) return united(a, b);
  if (keyword == "enum" && a.is_array() && b.is_array()) return common(a, b);
  if (keyword == "items") return {{"allOf", SchemaJson::array({a, b})}};
  if (keyword == "nullable") return a == true && b == true;
  if (a.is_number() && b.is_number()) {
    if (keyword.starts_with("min") || keyword == "exclusiveMinimum") return a < b ? b : a;
    if (keyword.starts_with("max") || keyword == "exclusiveMaximum") return a < b ? a : b;
  }
  throw kSchemaErrors.user(place, "two values of '" + keyword + "' cannot be joined",
                           "equal values", short_text(a) + " and " + short_text(b));
}

}  // namespace

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

std::optional<std::int64_t> least_whole(const SchemaJson& schema, const std::string& place) {
  return std::max(whole_bound(schema, "minimum", true, false, place),
                  whole_bound(schema, "exclusiveMinimum", true, true, place));
}

std::optional<std::int64_t> most_whole(const SchemaJson& schema, const std::string& place) {
  const auto inclusive = whole_bound(schema, "maximum", false, false, place);
  const auto exclusive = whole_bound(schema, "exclusiveMaximum", false, true, place);
  return inclusive && exclusive ? std::min(inclusive, exclusive)
         : inclusive            ? inclusive
                                : exclusive;
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
  SchemaJson both = a;
  for (const auto& [keyword, value] : b.items()) {
    if (!both.contains(keyword) || subject_of(keyword, value, place) == KeywordSubject::kNothing)
      both[keyword] = value;
    else
      both[keyword] = joined_keyword(keyword, both[keyword], value, place);
  }
  return both;
}

}  // namespace strata
