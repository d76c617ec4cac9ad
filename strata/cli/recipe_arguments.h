/// Adds the arguments that every verb with a recipe takes: the file and `--set`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "strata/train/recipe.h"

namespace strata {

struct RecipeArguments {
  std::string path;
  std::vector<std::string> overrides;

  void add_to(CLI::App& verb) {
    verb.add_option("recipe", path, "YAML file that describes the run")->required();
    verb.add_option("--set", overrides, "override a field: --set train.steps=10")
        ->allow_extra_args(false);
  }
  /// `defaults`: what holds unless the recipe says otherwise.
  Recipe load(const Recipe& defaults = {}) const { return load_recipe(path, overrides, defaults); }
};

}  // namespace strata
