/// Refuses to go on from a checkpoint of a recommender with features, rows or a seed that are others than those
/// it was trained with, and names every field that differs.
///
/// Errors  UserError: the fields, with both values.
#pragma once

#include <string>

#include "strata/checkpoint/saver.h"
#include "strata/train/recipe.h"

namespace strata {

/// `before`: the effective recipe that the checkpoint at `path` has kept. Nothing for a model of text, and for a
/// recipe of another version that cannot be read.
void require_same_features(const Recipe& recipe, const std::string& before,
                           const std::string& path);

/// Where the checkpoint at `path` is, for a run of this recipe that goes on from it; the beginning for an empty
/// path. Refuses another model.
TrainingPosition position_of(const Recipe& recipe, const std::string& path);

}  // namespace strata
