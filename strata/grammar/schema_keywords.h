/// Lists the keywords of JSON Schema, and reads their values.
///
/// Errors  UserError with the place of the schema, a JSON pointer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/error_source.h"

namespace strata {

using SchemaJson = nlohmann::ordered_json;

inline constexpr ErrorSource kSchemaErrors{"grammar.schema", "change the schema"};

/// Refuses a value with more than kMaxSchemaMembers members, and a schema of more than
/// kMaxSchemaValues values.
void check_schema_limits(const SchemaJson& value, std::size_t values);

/// What a keyword is about.
enum class KeywordSubject : std::uint8_t {
  kNothing,  ///< an annotation
  kAny,      ///< values of any type
  kString,
  kNumber,
  kObject,
  kArray,
};

/// Refuses a keyword that is not supported with its value.
KeywordSubject subject_of(const std::string& keyword, const SchemaJson& value,
                          const std::string& place);

/// Whether the schema has keywords that are not annotations.
bool asserts(const SchemaJson& schema, const std::string& place);

/// The types of a schema; none: any. "integer" is left out together with "number".
std::optional<std::vector<std::string>> types_of(const SchemaJson& schema,
                                                 const std::string& place);
bool has_type(const SchemaJson& value, const std::string& type);

/// A count of characters, items or members.
std::uint32_t count_of(const SchemaJson& schema, const char* keyword, std::uint32_t otherwise,
                       const std::string& place);

/// The whole numbers that "minimum" and the other bounds leave, which are rounded inwards.
struct WholeRange {
  std::optional<std::int64_t> least = {}, most = {};
  bool is_empty = false;
};
WholeRange whole_range(const SchemaJson& schema, const std::string& place);

/// The schema for texts that both accept: "type" and "properties" are joined, the tighter bounds
/// kept, and "nullable" becomes a type. Refuses keywords that differ and cannot be joined.
SchemaJson joined(const SchemaJson& a, const SchemaJson& b, const std::string& place);

/// The regular expression of a format of strings.
const std::string& format_pattern(const std::string& format, const std::string& place);

}  // namespace strata
