/// Collects the facts of a report's header: machine, date, program and recipe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "strata/run/recipe_file.h"

namespace strata {

/// The processor and its memory, or the GPUs of the recipe, of this process's machine.
std::string machine_text(const Recipe& recipe);

/// The machine is that of this process. `source` names the recipe's origin.
std::vector<std::pair<std::string, std::string>> report_origin(const Recipe& recipe,
                                                               const std::string& source);

}  // namespace strata
