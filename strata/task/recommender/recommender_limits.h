/// Refuses what a run of a recommender cannot do, when its recipe is read or when its plan is made.
///
/// Errors  UserError with the place in the recipe.
#pragma once

#include <cstdint>

#include "strata/models/decoder_options.h"
#include "strata/schedule/step_plan.h"
#include "strata/task/recipe.h"
#include "strata/task/recommender/recommender_fields.h"

namespace strata {

/// Checks the recipe; `where` returns the place of a field.
void check_recommender(const RecommenderFields& fields, const Recipe& recipe,
                       const FieldPlace& where);

/// Checks the plan and the number of processes.
void check_planned_recommender(const RecommenderFields& fields, const StepDecisions& decisions,
                               int processes);

/// Refuses a run without steps, with `samples` per epoch.
void require_steps(const RecommenderFields& fields, const TrainOptions& train, std::int64_t samples,
                   const FieldPlace& where);

}  // namespace strata
