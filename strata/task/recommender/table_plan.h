/// Says what the tables of a recommender's plan take: bytes of a row, rows that fit, bytes on the wire.
#pragma once

#include "strata/task/recommender/recommender_fields.h"
#include "strata/task/task.h"

namespace strata {

PlanAppendix table_plan(const RecommenderFields& fields, const Recipe& recipe);

}  // namespace strata
