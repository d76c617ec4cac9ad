/// Refuses to resume from a checkpoint of a recommender that was trained with other features,
/// embeddings or another seed, and names every field that differs.
///
/// Errors  UserError: the fields, with both values.
#pragma once

#include <string>

#include "strata/task/recipe.h"
#include "strata/task/recommender/recommender_fields.h"

namespace strata {

struct TrainedFeatures {
  const RecommenderFields& fields;
  const Recipe& recipe;
};

/// `before` belongs to the checkpoint at `path`.
void require_same_features(const TrainedFeatures& now, const TrainedFeatures& before,
                           const std::string& path);

}  // namespace strata
