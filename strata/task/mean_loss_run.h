/// Runs a task whose data are whole mini-batches, and evaluates it by the mean loss of its
/// validation samples, and by their mean score if the model scores samples.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/data/read_ahead.h"
#include "strata/task/recipe.h"
#include "strata/task/task_data.h"
#include "strata/task/task_run.h"

namespace strata {

/// How many sizes the mini-batches of a validation have: all have the same one, but the last.
/// Without a number of samples in the recipe, both sizes may occur.
int validation_shapes(const TrainOptions& options);

class MeanLossRun final : public TaskRun {
 public:
  /// `score`: the name of the metric that is the sum of the samples' scores divided by the number
  /// of valid targets; empty: the model does not score samples.
  explicit MeanLossRun(const TaskData& data, std::string score = "")
      : data_(data), score_(std::move(score)) {}
  std::unique_ptr<TaskRank> rank(Group& group) override;

  // For its ranks, from any thread. They share the tensors, which must not be written.
  MiniBatch mini_batch(std::int64_t step, std::int64_t samples_seen);
  std::vector<MiniBatch> validation();
  const std::string& score() const { return score_; }

 private:
  const TaskData& data_;
  const std::string score_;
  std::once_flag reads_ahead_, reads_validation_;
  std::optional<ReadAhead> ahead_;
  std::vector<MiniBatch> validation_;
  std::exception_ptr validation_error_;  // of the reading, for every rank
};

}  // namespace strata
