#include <CLI/CLI.hpp>
#include <iostream>

#include "strata/cli/verbs.h"
#include "strata/train/recipe.h"

namespace strata {

void add_options_verb(CLI::App& app) {
  app.add_subcommand("options", "list every field of a recipe with default, unit and meaning")
      ->callback([] { std::cout << recipe_options_table(); });
}

}  // namespace strata
