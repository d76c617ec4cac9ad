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

/// The types of a schema; none: any. "integer" is left out beside "number".
std::optional<std::vector<std::string>> types_of(const SchemaJson& schema,
                                                 const std::string& place);
bool has_type(const SchemaJson& value, const std::string& type);

/// A count of characters, items or members.
std::uint32_t count_of(const SchemaJson& schema, const char* keyword, std::uint32_t otherwise,
                       const std::string& place);

/// The bound of a whole number that "minimum" or another keyword sets, rounded inwards.
std::optional<std::int64_t> least_whole(const SchemaJson& schema, const std::string& place);
std::optional<std::int64_t> most_whole(const SchemaJson& schema, const std::string& place);

/// The schema for texts that both accept: "type" and "properties" are joined, the tighter bounds
/// kept. Refuses keywords that differ and cannot be joined.
SchemaJson joined(const SchemaJson& a, const SchemaJson& b, const std::string& place);

/// The regular expression of a format of strings.
const char* format_pattern(const std::string& format, const std::string& place);

}  // namespace strata
