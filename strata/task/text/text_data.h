/// Reads the windows of a text: those for training, in an order that needs no memory, and those for
/// validation.
///
/// Threads  const, any thread.
#pragma once

#include "strata/data/corpus.h"
#include "strata/data/loader.h"
#include "strata/task/recipe.h"
#include "strata/task/task_data.h"

namespace strata {

class TextTask;

class TextData final : public TaskData {
 public:
  TextData(const TextTask& task, const TrainOptions& options);
  MiniBatch at(std::int64_t samples_seen) const override;
  std::int64_t seen_after(std::int64_t samples_seen) const override;
  std::int64_t steps() const override { return options_.steps; }
  std::string unit() const override { return "token"; }
  std::int64_t training_samples() const override { return corpus_.train.count; }
  std::int64_t validation_samples() const override;
  bool evaluates() const override { return corpus_.validation.count > 0; }
  std::vector<MiniBatch> validation() const override;

 private:
  Corpus corpus_;
  TrainingLoader loader_;
  TrainOptions options_;
};

}  // namespace strata
