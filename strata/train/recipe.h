/// Holds everything a user can ask for: the options of every component, read from one YAML file.
///
/// Errors  UserError with the place in the recipe: what base/options refuses, and fields that
///         contradict each other.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/data/corpus.h"
#include "strata/device/device.h"
#include "strata/models/decoder_options.h"
#include "strata/optim/learning_rate.h"
#include "strata/optim/optimizer.h"
#include "strata/pipeline/graph_options.h"
#include "strata/plan/mesh_check.h"
#include "strata/plan/plan_options.h"
#include "strata/train/recommender_recipe.h"

namespace strata {

struct TrainOptions {
  std::int64_t steps = 1000;
  std::int64_t mini_batch = 32;
  std::int64_t micro_batch = 4;
  std::int64_t warmup = 0;
  Decay decay = Decay::kCosine;
  double final_fraction = 0.1;
  double clip = 1.0;
  double label_smoothing = 0;
  at::ScalarType precision = at::kFloat;
  std::int64_t seed = 1;
  bool deterministic = true;
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

struct Recipe {
  DecoderOptions model;
  DataOptions data;
  TrainOptions train;
  OptimizerOptions optimizer;
  MeshOptions mesh;
  DeviceChoice device = DeviceChoice::kAuto;  ///< mesh.device
  MemoryOptions memory;
  std::optional<RecommenderRecipe> recommender;  ///< instead of `model` and `data`
  std::string text;  ///< effective YAML, every field; what a checkpoint stores

  LearningRateSchedule learning_rate() const;
  int threads_per_rank() const;  ///< mesh.threads, or cores / ranks
  /// Of the kind that ranks compute on, the first one; refused if it is not there. The process is set up
  /// for it (device/determinism.h).
  Device rank_device() const;
  DeviceKind device_kind() const;  ///< the same of one that need not be there
};

/// Changes what a field is where it is not given: gets the defaults of the recipe's task.
using RecipeDefaults = std::function<void(Recipe&)>;

/// Reads `path`, or standard input for "-", and applies `overrides` ("a.b=c"). Fields that neither
/// gives are those of the recipe's task, as `defaults` has changed them.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                   const RecipeDefaults& defaults = nullptr);

/// The same from text; `name` stands for the file in errors.
Recipe parse_recipe(const std::string& text, const std::string& name,
                    const std::vector<std::string>& overrides,
                    const RecipeDefaults& defaults = nullptr);

/// The optimizer of a recipe that a checkpoint stores. Fields that this version or the recipe does not
/// have keep their defaults.
OptimizerOptions stored_optimizer(const std::string& recipe);

/// What its mesh has to agree with.
MeshLimits mesh_limits(const Recipe& recipe);

/// What a warm-up that is longer than the run makes of the learning rate; "" for a shorter one.
std::string warmup_advice(const Recipe& recipe);

/// Paths of all fields of all tasks.
std::vector<std::string> recipe_fields();

/// Tables of all fields with default, unit and sentence, one a task: the first has every field, the others
/// what their task has instead. `strata options`.
std::string recipe_options_table();

}  // namespace strata
