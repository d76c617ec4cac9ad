/// Rejects formats of what ranks send (mesh.traffic) that the rest of a recipe does not allow.
///
/// Errors  UserError `[run.recipe]` at the place that `where` returns for the field.
#pragma once

#include "strata/plan/search/mesh_check.h"
#include "strata/task/recipe.h"

namespace strata {

void check_traffic(const Recipe& recipe, const PlaceOf& where);

}  // namespace strata
