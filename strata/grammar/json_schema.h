/// Reads a JSON Schema (draft 2020-12) as the grammar of the JSON texts that it accepts.
///
/// Every text of the grammar is valid. These valid texts are left out: members in another order
/// than that of "properties"; members that no list of "properties" names, unless
/// "additionalProperties" allows them; whole numbers with a fraction or an exponent; white space
/// beyond JsonExpressions. A schema without "type" has the types that its other keywords are about.
/// "oneOf" is read as "anyOf".
///
/// Reads type, enum, const, anyOf, oneOf, allOf, $ref within the schema, nullable together with
/// type; properties, required, additionalProperties, minProperties and maxProperties of maps;
/// prefixItems, items, minItems, maxItems; minLength, maxLength, pattern, format; minimum, maximum,
/// exclusiveMinimum and exclusiveMaximum of integers. Ignores annotations such as title,
/// description and default.
///
/// Cost     linear in the schema, and in the copies that allOf, and $ref and anyOf together with
///          other keywords, make of its parts, which are limited.
/// Errors   UserError with the JSON pointer of a keyword that is not supported, and of a value that
///          is no schema; the limits below and of Grammar.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>

#include "strata/grammar/grammar.h"

namespace strata {

inline constexpr std::size_t kMaxSchemaMembers = 2'000;  ///< of an object within a schema
inline constexpr std::size_t kMaxSchemaValues = 20'000;  ///< of a schema, with values within values

/// `schema`: an object or a boolean of at most kMaxJsonDepth levels (strata/base/json_document.h).
Grammar::Expression read_json_schema(Grammar& grammar, const nlohmann::ordered_json& schema);

/// Any JSON object.
Grammar::Expression json_object(Grammar& grammar);

}  // namespace strata
