/// Rejects a recipe whose optimizer sends signs (optim/one_bit_adam.h), if its mesh leaves no ranks
/// that could send them, or lets ranks move apart that need equal weights.
///
/// Errors  UserError `[run.recipe]` at the place that `where` returns for the field.
#pragma once

#include "strata/plan/search/mesh_check.h"
#include "strata/task/recipe.h"

namespace strata {

/// For a mesh that was set, or one of those that mesh.auto compares.
void check_signs(const Recipe& recipe, const PlaceOf& where);

}  // namespace strata
