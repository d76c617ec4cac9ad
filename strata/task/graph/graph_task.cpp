#include "strata/task/graph/graph_task.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "strata/base/error_source.h"
#include "strata/task/graph/graph_data.h"
#include "strata/task/graph/graph_kind.h"
#include "strata/task/mean_loss_run.h"
#include "strata/task/tensor_batch.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

std::unique_ptr<Task> make_graph_task() { return std::make_unique<GraphTask>(); }

constexpr ErrorSource kGraphErrors{"task.graph"};

}  // namespace

// The file's model, and what follows from it.
struct GraphTask::Loaded {
  explicit Loaded(const GraphModelFields& fields)
      : exported(fields.file, fields.layers),
        model(exported.layers(fields.loss, fields.own_operations)),
        names(exported.state_names(model)) {}

  ExportedModel exported;
  Sequential model;
  std::map<std::string, std::string> names;
};

TaskKind graph_task_kind() {
  return {.name = "graph",
          .title = "Fields of task graph (a model that torch.export wrote):",
          .model_kinds = {},
          .make = make_graph_task};
}

void GraphTask::describe(OptionSet& set) {
  strata::describe(set, "model", model_);
  strata::describe(set, "data", data_);
}

void GraphTask::check(const Recipe& recipe, const FieldPlace& place) const {
  if (model_.file.empty())
    throw kGraphErrors.user(place("model.file"), "model.file: no model to train",
                            "a file of torch.export.save()", "nothing",
                            "set model.file, or pass --model FILE");
  if (recipe.train.precision != at::kFloat)
    throw kGraphErrors.user(place("train.precision"),
                            "an exported model computes in the types that its graph states", "fp32",
                            c10::toString(recipe.train.precision), "set train.precision=fp32");
  if (recipe.mesh.axes[Axis::kTensor] > 1)
    throw kGraphErrors.user(place("mesh.tp"), "ranks cannot divide an exported model's weights",
                            "1", std::to_string(recipe.mesh.axes[Axis::kTensor]),
                            "set mesh.tp=1, and mesh.pp or mesh.dp instead");
  const bool has_classes = loaded().exported.classes(model_.loss) > 0;
  if (recipe.train.label_smoothing != 0 && !has_classes)
    throw kGraphErrors.user(place("train.label_smoothing"), "a loss without classes has no labels",
                            "0", "another number",
                            "set train.label_smoothing=0, or model.loss=cross_entropy");
}

const GraphTask::Loaded& GraphTask::loaded() const {
  const std::scoped_lock lock(loading_);
  if (!loaded_) loaded_ = std::make_shared<const Loaded>(model_);
  return *loaded_;
}

std::string GraphTask::title() const {
  return std::filesystem::path(model_.file).filename().string();
}

Sequential GraphTask::model(const Recipe&, TensorSplit) const { return loaded().model; }

std::vector<TensorSpec> GraphTask::batch_inputs(std::int64_t samples) const {
  return loaded().exported.batch_inputs(model_.loss, samples);
}

MeshLimits GraphTask::mesh_limits(const Recipe& recipe) const {
  return {.mini_batch = recipe.train.mini_batch,
          .layers = loaded().model.num_layers(),
          .heads = 1,
          .kv_heads = 1,
          .has_tokens = false};
}

CheckpointModel GraphTask::checkpoint_model() const {
  const nlohmann::ordered_json fields = {{"task", "graph"}, {"file", loaded().exported.identity()}};
  return CheckpointModel(fields.dump(), loaded().names);
}

int GraphTask::evaluation_shapes(const Recipe& recipe) const {
  const bool validates = !data_.validation_inputs.empty() || data_.validation_fraction > 0;
  return validates ? validation_shapes(recipe.train) : 0;
}

bool GraphTask::has_uncounted_memory() const { return loaded().exported.has_frozen_parameters(); }

std::unique_ptr<TaskData> GraphTask::open(const Recipe& recipe, const std::string&) const {
  return std::make_unique<GraphData>(data_, samples(), recipe.train);
}

GraphSamples GraphTask::samples() const {
  return {.specs = batch_inputs(1),
          .loss = model_.loss,
          .classes = loaded().exported.classes(model_.loss)};
}

MiniBatch GraphTask::mini_batch(std::vector<at::Tensor> tensors) const {
  const GraphSamples model = samples();
  return graph_batch(model, fitting_tensors(std::move(tensors), model.specs), "targets");
}

std::vector<std::string> GraphTask::validation_metrics() const {
  if (loaded().exported.classes(model_.loss) == 0) return {};
  return {"accuracy"};
}

std::unique_ptr<TaskRun> GraphTask::start(const Recipe&, const StepPlan&, const TaskData& data,
                                          const TaskStart&) const {
  const std::vector<std::string> metrics = validation_metrics();
  return std::make_unique<MeanLossRun>(data, metrics.empty() ? "" : metrics.front());
}

void GraphTask::initialise(Trainer& trainer) const {
  trainer.initialise();
  trainer.fill([&](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
    loaded().exported.fill(weights, loaded().names);
  });
}

std::string GraphTask::first_weights(const Recipe&) const { return "of " + model_.file; }

std::string GraphTask::data_source() const {
  return data_.inputs.empty() ? "" : data_.inputs.front();
}

}  // namespace strata
