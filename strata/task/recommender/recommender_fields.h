/// Holds the recipe of a recommender: the net, the logs to learn from, and the embeddings of their
/// categorical features.
///
/// Errors  UserError with the place in the recipe: what each section refuses, features that
///         contradict each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/embed/worker.h"
#include "strata/models/recommender.h"
#include "strata/optim/optimizer_options.h"
#include "strata/rowserver/options.h"
#include "strata/tabular/options.h"

namespace strata {

struct RecommenderFields {
  RecommenderOptions model;
  TabularOptions data;
  EmbeddingOptions embedding;
  std::int64_t epochs = 0;  ///< number of training epochs; 0: train.steps
};

/// The default optimizer of the dense net.
OptimizerOptions recommender_optimizer();

void describe(OptionSet& set, RecommenderFields& recipe);

/// Throws UserError for contradictory fields; `where` returns the place of a field.
void check(const RecommenderFields& recipe,
           const std::function<std::string(const std::string&)>& where);

RecommenderInputs inputs_of(const RecommenderFields& recipe);

/// The tables, the staleness allowed for each, and the features that read them.
WorkerOptions worker_options(const RecommenderFields& recipe, int threads = 1);

/// The fields that determine the net and its tables; a checkpoint's model is compared by them.
std::string network_fields(const RecommenderFields& recipe);

/// The folder of saved rows that belong to this checkpoint, or to those in this folder.
std::string saved_rows_folder(const RecommenderFields& fields, const std::string& checkpoint);

}  // namespace strata
