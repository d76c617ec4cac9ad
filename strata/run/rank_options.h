/// Makes the options of ranks and trainers from a recipe.
///
/// Errors  UserError: more threads than one machine should start; a missing device.
#pragma once

#include "strata/comm/ranks.h"
#include "strata/run/resolved_run.h"
#include "strata/train/trainer.h"

namespace strata {

TrainerOptions trainer_options(const Recipe& recipe);

/// Without a fingerprint and without notices of stalls.
RanksOptions ranks_options(const Recipe& recipe);
RanksOptions ranks_options(const ResolvedRun& run);

/// Joins the processes of the run; the recipe must be equal in all (UserError).
World join_world(const ResolvedRun& run);

}  // namespace strata
