/// Writes YAML in one line, for messages and values of --set.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace strata {

std::string in_one_line(const YAML::Node& node);  ///< "[price, {name: age}]"

}  // namespace strata
