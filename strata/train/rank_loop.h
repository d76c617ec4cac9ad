/// Trains one rank of a run from its first step to its last: data, steps, validations, checkpoints.
///
/// Threads  one a rank; collective.
/// Errors   as train() (training_run.h); the other ranks learn of one before it leaves.
#pragma once

#include <memory>

#include "strata/comm/group.h"
#include "strata/device/account.h"
#include "strata/train/recommender_run.h"
#include "strata/train/training_run.h"

namespace strata {

/// What the ranks of one run have in common; rank 0 fills in the result.
struct RunState {
  const Recipe& recipe;
  const PlannedRun& run;
  const TrainingRequest& request;
  const RunData* data;
  bool shares_device = false;                        ///< with other ranks of this process
  int processes = 1;                                 ///< of the run
  std::unique_ptr<RecommenderRun> recommender = {};  ///< null: a model of text
  TrainingResult result = {};
};

void run_rank(RunState& state, Group& group, MemoryAccount& account);

}  // namespace strata
