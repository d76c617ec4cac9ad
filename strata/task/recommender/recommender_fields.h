/// Holds the recipe of a recommender: the net, the logs that it learns from, and the embeddings of their
/// categorical features.
///
/// Errors  UserError with the place in the recipe: what the sections' owners refuse, features that
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
  std::int64_t epochs = 0;  ///< of training; 0: train.steps
};

/// The optimizer of the dense net of a recipe that names none.
OptimizerOptions recommender_optimizer();

void describe(OptionSet& set, RecommenderFields& recipe);

/// `where` says where a field was given.
void check(const RecommenderFields& recipe,
           const std::function<std::string(const std::string&)>& where);

RecommenderInputs inputs_of(const RecommenderFields& recipe);

/// Tables, how stale each may be read, and which features read them.
WorkerOptions worker_options(const RecommenderFields& recipe);

/// The fields that make the net and its tables: what a checkpoint's model is compared by.
std::string network_fields(const RecommenderFields& recipe);

/// The folder of saved rows that belong to this checkpoint, or to those in this folder.
std::string saved_rows_folder(const RecommenderFields& fields, const std::string& checkpoint);

}  // namespace strata
