/// Reads `--weights TYPE`: the type of the matrices of a served model's blocks.
///
/// Errors  UserError `[cli.weights]`: another type; 8 bits where nothing computes with them.
#pragma once

#include <CLI/CLI.hpp>

#include "strata/models/weight_type.h"
#include "strata/task/recipe.h"

namespace strata {

CLI::Option* add_weights_option(CLI::App& verb, WeightType& type);

/// Refuses a recipe whose ranks cannot compute with weights of this type.
void require_weights(WeightType type, const Recipe& recipe);

}  // namespace strata
