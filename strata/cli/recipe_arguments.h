/// Adds the arguments that every verb with a recipe takes: the file and `--set`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "strata/train/recipe.h"

namespace strata {

/// For options that name a file or folder. An empty one is most likely a shell variable that is not
/// set: doing without the option would start a long run anew, or lose its results.
inline const CLI::Validator refuse_empty_path(
    [](const std::string& path) { return path.empty() ? std::string("the path is empty") : ""; },
    "PATH");

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
