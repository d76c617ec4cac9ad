#include "strata/base/json_text.h"

#include <nlohmann/json.hpp>

namespace strata {

std::string through_json(const std::string& text) {
  return nlohmann::json::parse(json_text(nlohmann::json(text))).get<std::string>();
}

}  // namespace strata
