/// Refuses what no run of a recommender can do: by its recipe when that is read, by its plan when that is
/// made.
///
/// Errors  UserError with the place in the recipe.
#pragma once

#include <cstdint>

#include "strata/models/decoder_options.h"
#include "strata/schedule/step_plan.h"
#include "strata/task/recipe.h"
#include "strata/task/recommender/recommender_fields.h"

namespace strata {

/// Refuses by the recipe; `where` says where a field was given.
void check_recommender(const RecommenderFields& fields, const Recipe& recipe,
                       const FieldPlace& where);

/// Refuses by the plan, and by the number of processes that it runs in.
void check_planned_recommender(const RecommenderFields& fields, const StepDecisions& decisions,
                               int processes);

/// Refuses a run that has no step to make with `samples` an epoch.
void require_steps(const RecommenderFields& fields, const TrainOptions& train, std::int64_t samples,
                   const FieldPlace& where);

}  // namespace strata
