/// Runs a task whose data are whole mini-batches, and evaluates it by the mean loss of its
/// validation samples.
#pragma once

#include "strata/task/task_data.h"
#include "strata/task/task_run.h"

namespace strata {

class MeanLossRun final : public TaskRun {
 public:
  explicit MeanLossRun(const TaskData& data) : data_(data) {}
  std::unique_ptr<TaskRank> rank(Group& group) override;

 private:
  const TaskData& data_;
};

}  // namespace strata
