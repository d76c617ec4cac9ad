/// Turns a recipe into what can run: model, plan and the trainer's options.
///
/// Errors  UserError when the model doesn't fit its budget, before anything is allocated; what
///         recipe, partitioner and builders refuse.
#pragma once

#include "strata/plan/planner.h"
#include "strata/train/recipe.h"
#include "strata/train/trainer.h"

namespace strata {

struct PlannedRun {
  Sequence model;
  Plan plan;
  TrainerOptions trainer;
  int ranks = 1;
  int threads_per_rank = 1;
};

/// `probe`: measure the layers' seconds (cached); else estimate them from FLOPs.
PlannedRun plan_run(const Recipe& recipe, bool probe = true);

}  // namespace strata
