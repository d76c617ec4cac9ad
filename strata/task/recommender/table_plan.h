/// Computes what the tables of a recommender need, for its plan: bytes per row, rows that fit,
/// bytes on the network.
#pragma once

#include "strata/task/recommender/recommender_fields.h"
#include "strata/task/task.h"

namespace strata {

PlanAppendix table_plan(const RecommenderFields& fields, const Recipe& recipe);

}  // namespace strata
