/// Reads the rows that a checkpoint has, without the states of their optimizer.
///
/// Errors  UserError: no saved rows, because servers keep them; rows of other features or seed;
///         damaged files.
#pragma once

#include <string>
#include <vector>

#include "strata/task/embedding_table.h"
#include "strata/task/recipe.h"
#include "strata/task/recommender/recommender_fields.h"

namespace strata {

/// `checkpoint`: its folder, or the folder of several, of which the newest is read. Candidates,
/// which are counted and not yet admitted, are left out.
std::vector<EmbeddingTable> saved_embeddings(const RecommenderFields& fields, const Recipe& recipe,
                                             const std::string& checkpoint);

}  // namespace strata
