/// Rejects recipes with outer steps (optim/outer_step.h) if other fields contradict these.
///
/// Errors  UserError `[run.recipe]` at the place that `where` returns for the field.
#pragma once

#include "strata/plan/search/mesh_check.h"
#include "strata/task/recipe.h"

namespace strata {

void check_outer(const Recipe& recipe, const PlaceOf& where);

}  // namespace strata
