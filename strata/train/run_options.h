/// Says what a recipe asks of ranks and trainers beside its plan.
///
/// Errors  UserError: more threads than one machine should start; a device that is not there.
#pragma once

#include "strata/comm/ranks.h"
#include "strata/train/recipe.h"
#include "strata/train/trainer.h"

namespace strata {

TrainerOptions trainer_options(const Recipe& recipe);

RanksOptions ranks_options(const Recipe& recipe);

/// Joins the processes of the run; `recipe` has to be the same in all.
World join_world(const Recipe& recipe);

}  // namespace strata
