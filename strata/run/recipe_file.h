/// Reads a recipe: the options of every component, from one YAML file.
///
/// Errors  UserError with the place in the recipe: what base/options refuses, and fields that
///         contradict each other.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/clock/quality_target.h"
#include "strata/task/recipe.h"
#include "strata/task/task.h"

namespace strata {

/// Changes default values: called with the recipe and its task, which have the task's defaults.
using RecipeDefaults = std::function<void(Recipe& recipe, Task& task)>;

/// Reads `path`, or standard input for "-", and applies `overrides` ("a.b=c"). Other fields have
/// the defaults of the recipe's task, as changed by `defaults`.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                   const RecipeDefaults& defaults = nullptr);

/// The same from text; `name` names the text in errors.
Recipe parse_recipe(const std::string& text, const std::string& name,
                    const std::vector<std::string>& overrides,
                    const RecipeDefaults& defaults = nullptr);

/// The optimizer of a recipe that a checkpoint stores. Fields that this version or the recipe does
/// not have keep their defaults.
OptimizerOptions stored_optimizer(const std::string& recipe);

/// The same for its outer steps.
OuterOptions stored_outer(const std::string& recipe);

/// The samples of a micro-batch in a recipe that a checkpoint stores; 0: it has none.
std::int64_t stored_micro_batch(const std::string& recipe);

/// The recipe with its micro-batch decided. Throws UserError if it may not have this one.
Recipe with_micro_batch(Recipe recipe, std::int64_t samples);

/// What train.target asks for; none: nothing.
std::optional<QualityTarget> target_of(const Recipe& recipe);

/// States the effect of a warm-up that is longer than the run on the learning rate; "" for a
/// shorter one.
std::string warmup_advice(const Recipe& recipe);

/// Paths of all fields of all tasks.
std::vector<std::string> recipe_fields();

/// Tables of all fields with default, unit and sentence. `task`: one task's fields; empty: the
/// fields of the first task, and the differences of each other task. Throws UserError for an
/// unknown task.
std::string recipe_options_table(const std::string& task = "");

}  // namespace strata
