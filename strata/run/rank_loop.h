/// Trains one rank of a run from its first step to its last: data, steps, validations, checkpoints.
///
/// Threads  one per rank; collective.
/// Errors   as train() (training_run.h); other ranks get an error before the failing rank leaves.
#pragma once

#include "strata/comm/group.h"
#include "strata/device/account.h"
#include "strata/run/training_run.h"

namespace strata {

/// What the ranks of one run share; rank 0 fills in the result.
struct RunState {
  const Recipe& recipe;
  const PlannedRun& run;
  const TrainingRequest& request;
  const TaskData& data;
  TaskRun& task;
  bool shares_device = false;  ///< with other ranks of this process
  int processes = 1;           ///< number of processes of the run
  TrainingResult result = {};
};

void run_rank(RunState& state, Group& group, MemoryAccount& account);

}  // namespace strata
