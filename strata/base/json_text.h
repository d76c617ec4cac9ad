/// Writes JSON whose texts the user has chosen: paths and names may hold bytes that are not UTF-8, which JSON
/// cannot, and which become U+FFFD.
#pragma once

#include <string>

namespace strata {

template <typename Json>  // of nlohmann's
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// What becomes of a text that is written so and read again.
std::string through_json(const std::string& text);

}  // namespace strata
