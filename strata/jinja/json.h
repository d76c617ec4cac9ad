/// Turns JSON into values of a template and back, in the layout of Python's json.dumps.
///
/// Errors  JinjaProblem: a value that JSON cannot express.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "strata/jinja/value.h"

namespace strata {

JinjaValue value_of(const nlohmann::ordered_json& json);

struct JsonLayout {
  bool ascii = false;                 ///< other characters as \uXXXX
  std::optional<std::string> indent;  ///< of a level; none: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

std::string json_text(const JinjaValue& value, const JsonLayout& layout, JinjaMeter& meter);

}  // namespace strata
