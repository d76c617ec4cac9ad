/// Scores samples with the net of one checkpoint, in host memory. The embeddings are those of the
/// checkpoint, in memory too, or, of a run with servers, those that the servers of its recipe or
/// their replicas have now.
///
/// A score does not depend on the other samples, and has the bits that an evaluation on the CPU
/// computes in micro-batches of a multiple of kScoredRows samples. In other micro-batches the
/// library adds up the head's products of the last samples in another order (tested with MKL on
/// AVX2).
///
/// Threads  made in any; logits(): one at a time, in a rank's thread (comm/ranks.h).
/// Errors   UserError: a checkpoint that is damaged or of another model, without its embeddings.
///          SystemError from logits(): a server that does not answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/embed/inspected_servers.h"
#include "strata/embed/worker.h"
#include "strata/nn/graph/sequential.h"
#include "strata/tabular/preprocessing.h"
#include "strata/task/recommender/recommender_fields.h"

namespace strata {

/// A forward pass has a multiple of so many rows; the last ones may be zeros.
inline constexpr std::int64_t kScoredRows = 16;

class CheckpointScorer {
 public:
  /// `fields`, `seed`: of the recipe that trained the checkpoint in `folder`. Reads every byte.
  CheckpointScorer(const RecommenderFields& fields, std::uint64_t seed, const std::string& folder);

  std::int64_t version() const { return version_; }  ///< steps of training
  /// Of the embeddings that the last logits() read.
  RowsAge rows_age() const { return inspected_ ? inspected_->age() : RowsAge{version_, version_}; }
  const Preprocessing& preprocessing() const { return *preprocessing_; }

  /// Whether samples that the other's preprocessing has read mean the same here.
  bool reads_same_samples_as(const CheckpointScorer& other) const;

  /// One for each sample; probabilities are their logistic function.
  std::vector<float> logits(const SampleBatch& samples);

 private:
  std::unique_ptr<RowServers> saved_rows(const RecommenderFields& fields, std::uint64_t seed,
                                         const std::string& folder) const;
  std::unique_ptr<RowServers> served_rows(const RecommenderFields& fields);

  const Sequential model_;
  std::int64_t version_ = 0;
  std::shared_ptr<const Preprocessing> preprocessing_;
  std::uint64_t fingerprint_;                     // of the tables
  std::string network_;                           // network_fields()
  std::vector<std::vector<at::Tensor>> weights_;  // by layer
  const InspectedServers* inspected_ = nullptr;   // servers_, if they are not in this process
  std::unique_ptr<RowServers> servers_;
  std::unique_ptr<EmbeddingWorker> worker_;
};

}  // namespace strata
