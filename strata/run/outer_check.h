/// Rejects recipes whose replicas move apart, by outer steps (optim/outer_step.h) or in rounds of
/// 0/1 Adam, if other fields contradict this.
///
/// Errors  UserError `[run.recipe]` at the place that `where` returns for the field.
#pragma once

#include "strata/plan/search/mesh_check.h"
#include "strata/task/recipe.h"

namespace strata {

void check_outer(const Recipe& recipe, const PlaceOf& where);

/// The part about rounds of 0/1 Adam, for a mesh that was searched.
void check_sign_rounds(const Recipe& recipe, const PlaceOf& where);

}  // namespace strata
