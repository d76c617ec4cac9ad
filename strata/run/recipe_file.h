/// Reads a recipe: the options of every component, from one YAML file.
///
/// Errors  UserError with the place in the recipe: what base/options refuses, and fields that
///         contradict each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/task/recipe.h"
#include "strata/task/task.h"

namespace strata {

/// Changes the defaults of fields: gets the recipe and its task with the defaults of the task.
using RecipeDefaults = std::function<void(Recipe& recipe, Task& task)>;

/// Reads `path`, or standard input for "-", and applies `overrides` ("a.b=c"). Fields that neither
/// gives have the defaults of the recipe's task, as `defaults` has changed them.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                   const RecipeDefaults& defaults = nullptr);

/// The same from text; `name` stands for the file in errors.
Recipe parse_recipe(const std::string& text, const std::string& name,
                    const std::vector<std::string>& overrides,
                    const RecipeDefaults& defaults = nullptr);

/// The optimizer of a recipe that a checkpoint stores. Fields that this version or the recipe does not
/// have keep their defaults.
OptimizerOptions stored_optimizer(const std::string& recipe);

/// Says what a warm-up that is longer than the run makes of the learning rate; "" for a shorter one.
std::string warmup_advice(const Recipe& recipe);

/// Paths of all fields of all tasks.
std::vector<std::string> recipe_fields();

/// Tables of all fields with default, unit and sentence. `task`: one task's fields; empty: the fields
/// of the first task, and what each other task has instead. UserError: no such task.
std::string recipe_options_table(const std::string& task = "");

}  // namespace strata
