/// Holds everything that a user can configure in a run: the task to learn, and the options that all
/// tasks share. run/recipe_file.h reads it from YAML.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>

#include "strata/base/options.h"
#include "strata/device/device.h"
#include "strata/nn/primitives/primitive_choice.h"
#include "strata/optim/learning_rate.h"
#include "strata/optim/optimizer_options.h"
#include "strata/optim/outer_step.h"
#include "strata/pipeline/graph_options.h"
#include "strata/plan/plan_options.h"
#include "strata/schedule/step_plan.h"

namespace strata {

class Task;

struct TrainOptions {
  std::int64_t steps = 1000;
  std::int64_t mini_batch = 32;
  std::int64_t micro_batch = 4;  ///< 0 in a recipe: open, until resolve() (run/resolved_run.h)
  /// No field: what takes the place of an open micro_batch, from the run that this one resumes. 0:
  /// nothing.
  std::int64_t resumed_micro_batch = 0;
  std::int64_t warmup = 0;
  Decay decay = Decay::kCosine;
  double final_fraction = 0.1;
  double clip = 1.0;
  double label_smoothing = 0;
  at::ScalarType precision = at::kFloat;
  std::int64_t seed = 1;
  bool deterministic = true;
  PrimitivesChoice primitives = PrimitivesChoice::kAuto;
  std::string target;
  std::int64_t validate_every = 0;
  std::int64_t validation_samples = 256;
  std::string checkpoint_folder;
  std::int64_t checkpoint_every = 0;
  std::int64_t keep_checkpoints = 2;
  std::string tensorboard;
  GraphMode graph = GraphMode::kAuto;
  std::int64_t log_lag = 0;
};

void describe(OptionSet& set, const std::string& prefix, TrainOptions& options);

/// How many of `available` samples a validation reads.
std::int64_t validated_samples(const TrainOptions& options, std::int64_t available);

struct Recipe {
  std::shared_ptr<const Task> task;  ///< never null in a parsed recipe
  TrainOptions train;
  OptimizerOptions optimizer;
  OuterOptions outer;
  MeshOptions mesh;
  DeviceChoice device = DeviceChoice::kAuto;  ///< mesh.device
  MemoryOptions memory;
  std::string text;  ///< effective YAML with every field; checkpoints store it

  LearningRateSchedule learning_rate() const;
  int threads_per_rank() const;  ///< mesh.threads, or cores / ranks
  /// The first device of the kind that ranks compute on, after setting up the process for it
  /// (device/determinism.h). Throws UserError if this machine has none.
  Device rank_device() const;
  DeviceKind device_kind() const;  ///< the same kind; the device need not exist here
};

/// Adds the sections that all tasks share.
void describe_shared(OptionSet& set, Recipe& recipe);

}  // namespace strata
