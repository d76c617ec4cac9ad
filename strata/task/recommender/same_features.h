/// Refuses to resume from a checkpoint of a recommender with other features, embeddings or another seed
/// than it was trained with, and names every field that differs.
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

/// `before`: those of the checkpoint at `path`.
void require_same_features(const TrainedFeatures& now, const TrainedFeatures& before,
                           const std::string& path);

}  // namespace strata
