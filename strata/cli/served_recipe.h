/// Finds the model that a checkpoint serves, and the mesh to serve it on.
#pragma once

#include <string>
#include <vector>

#include "strata/serve/served_model.h"
#include "strata/task/recipe.h"

namespace strata {

/// The recipe that trained the checkpoint at `path`, or for another program's model its sizes
/// and tokenizer, with `overrides`. A tokenizer.json in the folder takes precedence over the
/// recipe's.
/// Errors  UserError: a path without a model of text, an override that is no field.
Recipe recipe_of(const std::string& path, const std::vector<std::string>& overrides);

/// The recipe; UserError if its task is not text.
Recipe text_recipe(Recipe recipe);

/// The decoder of a text recipe, on the stages and the tensor-parallel slices of one replica of its
/// mesh. `checkpoint`: has the weights; of a folder with several, the latest, whatever a run saves
/// there later; empty: no weights. UserError: what require_weights() refuses.
ServedModel served_model(Recipe recipe, const std::string& checkpoint,
                         WeightType weights = WeightType::kPrecision);

/// The model at `path`, on one rank, to guess for `served`, in its precision unless `weights` has
/// another. UserError: what require_weights() and check_draft() refuse.
ServedModel draft_model(const std::string& path, const ServedModel& served, WeightType weights);

}  // namespace strata
