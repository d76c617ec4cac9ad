/// Decides what a training run needs before its ranks start, for the program and the Python
/// package.
///
///     Recipe recipe = load_recipe(path, {}, training_defaults(request.resume, request.from));
///     ResolvedRun run = resolve(std::move(recipe));
///     World world = join_world(run);
///     const TrainingStart start = start_training(world, run, request);
///     request.data = start.data.get();
///     train(world, run.recipe, start.planned, request);
///
/// Errors  UserError, before anything but an open micro-batch is measured: bad data, a checkpoint
///         of another model, a folder with later checkpoints than the run begins at, a folder that
///         cannot be written; what plans refuse.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "strata/run/recipe_file.h"
#include "strata/run/resume_point.h"
#include "strata/run/training_run.h"

namespace strata {

/// Makes the model of `from`, or else of `resume`, the default model, and the optimizer of `resume`
/// the default optimizer: a resumed run keeps what it started with, even if the defaults of this
/// version differ.
RecipeDefaults training_defaults(const std::string& resume, const std::string& from);

/// TrainOptions::resumed_micro_batch of a run that resumes there; 0 for "".
std::int64_t resumed_micro_batch(const std::string& resume);

struct TrainingStart {
  ResumePoint begin;                     ///< in process 0
  std::unique_ptr<const TaskData> data;  ///< the same; null elsewhere
  PlannedRun planned;
};

/// Sets train.steps of the run's recipe. `check`: what the caller refuses in addition, in process
/// 0.
TrainingStart start_training(World& world, ResolvedRun& run, const TrainingRequest& request,
                             const std::function<void()>& check = {});

}  // namespace strata
