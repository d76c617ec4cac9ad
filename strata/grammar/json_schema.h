/// Reads a JSON Schema (draft 2020-12) as the grammar of the JSON texts that it accepts.
///
/// Every text of the grammar is valid. These valid texts are left out: members in another order
/// than that of "properties"; members that no list of "properties" names, unless
/// "additionalProperties" allows them; whole numbers with a fraction or an exponent; white space
/// beyond JsonExpressions. A schema without "type" has the types that its other keywords are about.
/// "oneOf" is read as "anyOf".
///
/// Reads type, enum, const, anyOf, oneOf, allOf, $ref within the schema, nullable; properties,
/// required, additionalProperties, minProperties and maxProperties of maps; prefixItems, items,
/// minItems, maxItems; minLength, maxLength, pattern, format; minimum, maximum, exclusiveMinimum
/// and exclusiveMaximum of integers. Ignores annotations such as title, description and default.
///
/// Errors   UserError with the JSON pointer of a keyword that is not supported, and of a value that
///          is no schema; limits of Grammar.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "strata/grammar/grammar.h"

namespace strata {

/// `schema`: an object or a boolean of at most kMaxJsonDepth levels (strata/base/json_document.h).
Grammar::Rule read_json_schema(Grammar& grammar, const nlohmann::ordered_json& schema);

/// Any JSON object.
Grammar::Rule json_object_rule(Grammar& grammar);

}  // namespace strata
