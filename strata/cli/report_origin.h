/// Says where a report comes from: facts for its header.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "strata/run/recipe_file.h"

namespace strata {

/// Machine (of this process), date, program and recipe. `source`: what named the recipe.
std::vector<std::pair<std::string, std::string>> report_origin(const Recipe& recipe,
                                                               const std::string& source);

}  // namespace strata
