/// Reads the samples of logs: numbers, labels, and lists of ids.
///
/// Mini-batches have placeholders for the embeddings of their ids: [samples, 0].
///
/// Threads  const, any thread.
/// Errors   UserError: what the readers of the files refuse.
#pragma once

#include "strata/tabular/loader.h"
#include "strata/task/recipe.h"
#include "strata/task/recommender/recommender_fields.h"
#include "strata/task/task_data.h"

namespace strata {

class ClickData final : public TaskData {
 public:
  /// `state`: the preprocessing from a checkpoint; empty: fitted on the training samples.
  ClickData(const RecommenderFields& fields, const TrainOptions& options,
            const std::string& state = "");
  MiniBatch at(std::int64_t samples_seen) const override;
  std::int64_t seen_after(std::int64_t samples_seen) const override;
  std::int64_t steps() const override;
  std::string unit() const override { return "sample"; }
  std::int64_t training_samples() const override { return data_.train.samples(); }
  std::int64_t validation_samples() const override {
    return validated_samples(options_, data_.validation.samples());
  }
  bool evaluates() const override { return data_.validation.samples() > 0; }
  std::map<std::string, std::string> texts() const override;
  std::vector<std::string> notices() const override { return data_.notices; }
  const TabularData& tabular() const { return data_; }

  /// The net's inputs for `samples` samples: `part` holds those from `first` on; the others, which
  /// other replicas read, are zeros.
  MiniBatch tensors_of(const SampleBatch& part, std::int64_t first, std::int64_t samples) const;

 private:
  TabularData data_;
  TrainOptions options_;
  std::int64_t epochs_;
};

/// The preprocessing that a checkpoint, or the newest of a folder, has stored.
std::string saved_preprocessing(const std::string& checkpoint);

}  // namespace strata
