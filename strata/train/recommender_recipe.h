/// Holds what a recipe says of a recommender: the net, the logs that it learns from, and the rows of their
/// categorical features.
///
/// Errors  UserError with the place in the recipe: what the sections' owners refuse, features that
///         contradict each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/embed/options.h"
#include "strata/embed/worker.h"
#include "strata/models/recommender.h"
#include "strata/optim/optimizer_options.h"
#include "strata/tabular/options.h"

namespace strata {

struct RecommenderRecipe {
  RecommenderOptions model;
  TabularOptions data;
  EmbeddingOptions embedding;
  std::int64_t epochs = 0;  ///< of training; 0: train.steps
};

/// What the dense net learns with where the recipe says nothing.
OptimizerOptions recommender_optimizer();

/// Whether a recipe's model.kind is one of recommenders; false where that cannot be read. `name` stands for
/// the file where the kind is neither theirs nor a decoder's, which is refused.
bool names_recommender(const std::string& text, const std::string& name,
                       const std::vector<std::string>& overrides);

void describe(OptionSet& set, RecommenderRecipe& recipe);

/// `where` says where a field was given.
void check(const RecommenderRecipe& recipe,
           const std::function<std::string(const std::string&)>& where);

RecommenderInputs inputs_of(const RecommenderRecipe& recipe);

/// Tables, how stale each may be read, and which features read them.
WorkerOptions worker_options(const RecommenderRecipe& recipe);

/// The fields that make the net and its tables: what a checkpoint's model is compared by.
std::string network_fields(const RecommenderRecipe& recipe);

}  // namespace strata
