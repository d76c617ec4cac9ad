// Trains an exported model, for graph_case.py.
//
//   parity_graph FOLDER
//
// Reads FOLDER/model.pt2, FOLDER/run.json and the tensors of the mini-batch, FOLDER/input0, ... and
// FOLDER/targets, raw. Writes first_gradients.safetensors and weights.safetensors, under the names
// of state_dict(), and prints the loss of each step and the layers.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/checkpoint/safetensors.h"
#include "strata/comm/ranks.h"
#include "strata/exported/exported_model.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

using nlohmann::json;

at::Tensor read_tensor(const std::string& path, const json& spec) {
  const bool whole = spec.at("dtype") == "int64";
  at::Tensor tensor = at::empty(spec.at("shape").get<std::vector<std::int64_t>>(),
                                host_options(whole ? at::kLong : at::kFloat));
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  STRATA_CHECK_EQ(file.gcount(), static_cast<std::streamsize>(tensor.nbytes()), "parity.graph");
  return tensor;
}

MiniBatch read_batch(const std::string& folder, const json& run) {
  MiniBatch batch{.samples = run.at("samples"), .valid_tokens = run.at("valid")};
  const json& inputs = run.at("inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    batch.inputs.push_back(read_tensor(folder + "/input" + std::to_string(i), inputs[i]));
  batch.inputs.push_back(read_tensor(folder + "/targets", run.at("targets")));
  return batch;
}

ScheduleKind schedule_named(const std::string& name) {
  for (const ScheduleKind kind : kBuiltSchedules)
    if (name == name_of(kind)) return kind;
  STRATA_CHECK(false, "parity.graph");
}

// `stages`: of all ranks.
StepPlan plan_of(const Sequential& model, const json& run) {
  const int stages = run.value("stages", 1), layers = model.num_layers();
  const ScheduleKind schedule = schedule_named(run.value("schedule", "1f1b"));
  const int stages_a_rank = std::max(1, traits_of(schedule).stages_per_rank);
  StepDecisions decisions{
      .schedule = schedule,
      .mesh = {{Axis::kPipeline, stages / stages_a_rank}, {Axis::kData, run.value("dp", 1)}},
      .virtual_stages = stages_a_rank,
      .zero = {.stage = run.value("zero", 0)},
      .micro_batch = run.at("micro_batch")};
  for (int stage = 0; stage <= stages; ++stage)
    decisions.partition.bounds.push_back(layers * stage / stages);
  if (run.value("recompute", false)) decisions.recompute = LayerSet::all(layers - 1);
  if (const std::string tier = run.value("tier", "device"); tier != "device") {
    const Tier place = tier == "host" ? Tier::kHost : Tier::kDisk;
    decisions.tiers.layers.assign(static_cast<std::size_t>(layers), {place, place, place});
  }
  return plan_steps(model, decisions);
}

void write(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor});
  write_safetensors(path, named);
}

void run(const std::string& folder) {
  std::ifstream text(folder + "/run.json");
  const json run = json::parse(text);
  const ExportedModel exported(folder + "/model.pt2",
                               run.value("borders", std::vector<std::string>()));
  const Sequential model = exported.layers(
      run.at("loss") == "cross_entropy" ? ExportedLoss::kCrossEntropy : ExportedLoss::kSquaredError,
      run.value("own", false));
  const std::map<std::string, std::string> names = exported.state_names(model);
  const MiniBatch batch = read_batch(folder, run);
  std::vector<TensorSpec> inputs;
  for (const at::Tensor& input : batch.inputs)
    inputs.push_back({input.sizes().vec(), input.scalar_type()});
  model.value_specs(inputs);  // as a planner does
  const StepPlan plan = plan_of(model, run);
  std::map<std::string, at::Tensor> weights, gradients, named;
  std::vector<double> losses;
  std::mutex mutex;
  run_thread_ranks({.ranks = plan.decisions().mesh.size()}, [&](Group& group, MemoryAccount&) {
    TrainerOptions options;
    options.machine.seed = 1;
    options.optimizer.kind = OptimizerKind::kSgd;
    options.optimizer.momentum = 0;
    options.optimizer.weight_decay = 0;
    options.disk.path = folder + "/disk";
    Trainer trainer(model, plan, group, options);
    trainer.fill([&](const auto& states, const auto&) { exported.fill(states, names); });
    trainer.loaded();
    for (int step = 0; step < run.at("steps"); ++step) {
      const double loss = trainer.step(batch, run.at("learning_rate")).loss;
      const std::scoped_lock lock(mutex);
      if (group.rank() == 0) losses.push_back(loss);
      if (step == 0) assemble(trainer.owned_gradients(), gradients);
    }
    const std::scoped_lock lock(mutex);
    for (const int layer : trainer.layers()) assemble(trainer.owned_weights(layer), weights);
  });
  const auto under_names_of_states = [&](const std::map<std::string, at::Tensor>& tensors) {
    std::map<std::string, at::Tensor> states;
    for (const auto& [name, tensor] : tensors) states[names.at(name)] = tensor;
    return states;
  };
  write(folder + "/weights.safetensors", under_names_of_states(weights));
  write(folder + "/first_gradients.safetensors", under_names_of_states(gradients));
  json layers = json::array();
  for (int layer = 0; layer < model.num_layers(); ++layer) layers.push_back(model.name(layer));
  std::printf("%s\n", json({{"losses", losses}, {"layers", layers}}).dump().c_str());
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw std::runtime_error("parity_graph FOLDER");
    strata::run(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
