#include "strata/task/graph/graph_task.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "strata/base/checksum.h"
#include "strata/base/error_source.h"
#include "strata/task/graph/graph_data.h"
#include "strata/task/graph/graph_kind.h"
#include "strata/task/mean_loss_run.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

std::unique_ptr<Task> make_graph_task() { return std::make_unique<GraphTask>(); }

constexpr ErrorSource kGraphErrors{"task.graph"};

std::string hexadecimal(std::uint64_t number) {
  std::string digits(16, '0');
  for (int i = 15; i >= 0; --i, number >>= 4) digits[i] = "0123456789abcdef"[number & 15];
  return digits;
}

// Equal for files with the same layers, whatever their weights' values.
std::string layers_text(const Sequential& model) {
  Checksum sum;
  std::size_t weights = 0;
  const auto add = [&](const std::string& text) {
    sum.add(std::as_bytes(std::span(text)));
    sum.add(std::as_bytes(std::span("\n", 1)));
  };
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    add(model.name(layer));
    add(model.layer(layer).signature());
    for (const WeightSpec& spec : model.layout(layer).specs) add(spec.name), ++weights;
  }
  return std::to_string(weights) + " weights, graph " + hexadecimal(sum.value());
}

}  // namespace

// The file's model, and what follows from it.
struct GraphTask::Loaded {
  explicit Loaded(const GraphModelFields& fields)
      : exported(fields.file, fields.layers),
        model(exported.layers(fields.loss, fields.own_operations)),
        names(exported.state_names(model)),
        // Runs with and without own operations resume one another.
        layers(layers_text(fields.own_operations ? exported.layers(fields.loss) : model)) {}

  ExportedModel exported;
  Sequential model;
  std::map<std::string, std::string> names;
  std::string layers;
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
          .kv_heads = 1};
}

CheckpointModel GraphTask::checkpoint_model() const {
  const nlohmann::ordered_json fields = {
      {"task", "graph"}, {"file", loaded().layers}, {"loss", name_of(model_.loss)}};
  return CheckpointModel(fields.dump(), loaded().names);
}

int GraphTask::evaluation_shapes(const Recipe&) const {
  const bool validates = !data_.validation_inputs.empty() || data_.validation_fraction > 0;
  return validates ? 2 : 0;
}

std::unique_ptr<TaskData> GraphTask::open(const Recipe& recipe, const std::string&) const {
  return std::make_unique<GraphData>(data_, batch_inputs(1), loaded().exported.classes(model_.loss),
                                     recipe.train);
}

std::unique_ptr<TaskRun> GraphTask::start(const Recipe&, const StepPlan&, const TaskData& data,
                                          const TaskStart&) const {
  const bool has_classes = loaded().exported.classes(model_.loss) > 0;
  return std::make_unique<MeanLossRun>(data, has_classes ? "accuracy" : "");
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
