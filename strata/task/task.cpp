#include "strata/task/task.h"

#include <utility>

#include "strata/base/errors.h"
#include "strata/task/mean_loss_run.h"
#include "strata/task/tensor_batch.h"

namespace strata {

MeshLimits Task::mesh_limits(const Recipe& recipe) const {
  return {.mini_batch = recipe.train.mini_batch,
          .layers = model(recipe, {}).num_layers(),
          .has_tokens = false};
}

void Task::initialise(Trainer& trainer) const { trainer.initialise(); }

std::string Task::first_weights(const Recipe& recipe) const {
  return "random, of train.seed " + std::to_string(recipe.train.seed);
}

MiniBatch Task::mini_batch(std::vector<at::Tensor> tensors) const {
  return tensor_batch(std::move(tensors), batch_inputs(1));
}

std::unique_ptr<TaskRun> Task::start(const Recipe&, const StepPlan&, const TaskData& data,
                                     const TaskStart&) const {
  return std::make_unique<MeanLossRun>(data);
}

void Task::check_inspection(const InspectionRequest& request, const TaskData&) const {
  if (!request.importance && request.hot_ids == 0) return;
  const std::string option = request.importance ? "--importance" : "--hot-ids";
  throw UserError({.operation = "task.inspection",
                   .where = option,
                   .what = "this model has neither features nor tables of ids",
                   .expected = "a recommender",
                   .got = title(),
                   .fix = "leave out " + option});
}

std::vector<EmbeddingTable> Task::saved_embeddings(const Recipe&,
                                                   const std::string& checkpoint) const {
  throw UserError({.operation = "task.embeddings",
                   .where = checkpoint,
                   .what = "this model has no tables of embeddings",
                   .expected = "a recommender",
                   .got = title(),
                   .fix = "name a checkpoint of a recommender"});
}

}  // namespace strata
