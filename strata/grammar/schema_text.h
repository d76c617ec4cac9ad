/// Parses a JSON Schema whose objects keep their members in the order of the text.
///
/// Cost     linear in the text: what surrounds the schema is parsed and dropped.
/// Errors   UserError: not JSON, more than kMaxJsonDepth levels, the limits of
///          strata/grammar/json_schema.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace strata {

/// `path`: keys of the objects around the schema; the last member of a key counts. Null if the text
/// has no such member. Without keys the text is the schema.
nlohmann::ordered_json parse_schema(std::string_view text, std::span<const std::string> path = {});

}  // namespace strata
