#include "strata/run/training_start.h"

#include <utility>

#include "strata/base/durable_file.h"
#include "strata/base/error_source.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/reader.h"
#include "strata/task/task.h"
#include "strata/train/disk_commit.h"

namespace strata {
namespace {

constexpr ErrorSource kStartErrors{"run.start"};

// The recipe that a checkpoint or a folder of memory.disk stores; empty if another program wrote
// the path.
std::string stored_recipe(const std::string& path) {
  if (holds_commits(path)) return last_commit(path).recipe;
  const CheckpointReader source = CheckpointReader::open(path);
  return source.is_pretrained() ? "" : source.manifest().recipe;
}

void take_model(const std::string& path, Task& task) {
  if (holds_commits(path)) return task.take_model(last_commit(path).recipe);
  task.take_model(CheckpointReader::open(path));
}

}  // namespace

RecipeDefaults training_defaults(const std::string& resume, const std::string& from) {
  return [=](Recipe& defaults, Task& task) {
    const std::string& model = from.empty() ? resume : from;
    if (!model.empty()) take_model(model, task);
    if (resume.empty()) return;
    const std::string stored = stored_recipe(resume);
    if (stored.empty()) return;
    defaults.optimizer = stored_optimizer(stored);
    defaults.outer = stored_outer(stored);
    defaults.train.resumed_micro_batch = stored_micro_batch(stored);
  };
}

std::int64_t resumed_micro_batch(const std::string& resume) {
  return resume.empty() ? 0 : stored_micro_batch(stored_recipe(resume));
}

TrainingStart start_training(World& world, ResolvedRun& run, const TrainingRequest& request,
                             const std::function<void()>& check) {
  Recipe& recipe = run.recipe;
  ResumePoint begin;
  std::unique_ptr<const TaskData> data;
  const std::string steps = world.agree([&] {
    if (recipe.mesh.link().is_set() && world.processes() == 1)
      throw kStartErrors.user("mesh.link",
                              "it limits messages between processes, and this run has one",
                              "at least 2 processes", "1 process",
                              "start several processes (strata launch), or remove mesh.link");
    if (request.resume.empty() && !request.from.empty())
      recipe.task->check_first_weights(request.from);
    begin = resume_point(recipe, request.resume);
    data = open_data(recipe, request.resume);
    recipe.task->check_inspection(request.inspection, *data);
    if (!recipe.train.target.empty() && !data->evaluates())
      throw kStartErrors.user("train.target", "there are no validation samples to look for it in",
                              "validation data", "none", "name some, or remove train.target");
    require_no_later_checkpoint(recipe.train.checkpoint_folder, begin.steps_done);
    for (const auto& [field, path] :
         {std::pair("train.checkpoint_folder", &recipe.train.checkpoint_folder),
          std::pair("train.tensorboard", &recipe.train.tensorboard)})
      if (!path->empty()) require_writable_folder(*path, field);
    if (check) check();
    return std::to_string(data->steps());
  });
  recipe.train.steps = std::stoll(steps);
  PlannedRun planned = agree_on_plan(world, run, begin.decisions, data.get());
  return {std::move(begin), std::move(data), std::move(planned)};
}

}  // namespace strata
