/// Reads `--weights TYPE` and `--draft-weights TYPE`: the types of the matrices of models' blocks.
///
/// Errors  UserError `[cli.weights]`: another type; fewer bits where nothing computes with them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "strata/models/weight_type.h"
#include "strata/task/recipe.h"

namespace strata {

/// `of`: whose blocks, " of --draft".
CLI::Option* add_weights_option(CLI::App& verb, WeightType& type,
                                const std::string& option = "--weights",
                                const std::string& of = "");

/// " --weights int8": the text and the type; "" for kPrecision.
std::string weights_ending(const std::string& text, WeightType type);

/// Refuses a recipe whose ranks cannot compute with weights of this type.
void require_weights(WeightType type, const Recipe& recipe,
                     const std::string& option = "--weights");

}  // namespace strata
