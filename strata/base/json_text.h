/// Writes JSON that contains user texts. Paths and names may hold bytes that are not UTF-8; JSON
/// cannot, so they become U+FFFD.
#pragma once

#include <string>

namespace strata {

template <typename Json>  // nlohmann::json or nlohmann::ordered_json
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Returns the text that reading back its JSON form yields.
std::string through_json(const std::string& text);

}  // namespace strata
