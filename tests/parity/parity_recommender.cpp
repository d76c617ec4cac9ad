// Trains a recommender on batches from recommender_test.py.
//
//   parity_recommender FOLDER < case.json
//
// The case: "model" (fields as in recipes), "numeric", "row_widths", "mesh", "micro_batch",
// "recompute", "learning_rate", "steps" and "evaluate" (batches: numeric, rows, labels). Prints one
// JSON object per step: loss, norm of the gradient. FOLDER gets first.safetensors and
// last.safetensors (weights before and after), gradients.safetensors (of the first step; those of
// the rows as "rows") and scores.safetensors.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/safetensors.h"
#include "strata/comm/ranks.h"
#include "strata/models/recommender.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

using nlohmann::json;
using Tensors = std::map<std::string, at::Tensor>;

at::Tensor rows_of(const json& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto width = static_cast<std::int64_t>(rows.at(0).size());
  at::Tensor tensor = at::empty({count, width}, at::kFloat);
  float* to = tensor.data_ptr<float>();
  for (const json& row : rows)
    for (const json& value : row) *to++ = value.get<float>();
  return tensor;
}

MiniBatch batch_of(const json& batch) {
  const std::vector<float> labels = batch.at("labels");
  MiniBatch result{.inputs = {rows_of(batch.at("numeric")), rows_of(batch.at("rows")),
                              at::empty({static_cast<std::int64_t>(labels.size())}, at::kFloat)},
                   .samples = static_cast<std::int64_t>(labels.size()),
                   .valid_tokens = std::ranges::count_if(labels, [](float y) { return y >= 0; })};
  std::ranges::copy(labels, result.inputs[2].data_ptr<float>());
  return result;
}

RecommenderOptions options_of(const json& setup) {
  RecommenderOptions options;
  OptionSet set;
  describe(set, "model", options);
  for (const auto& [field, value] : setup.at("model").items())
    set.set("model." + field + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  return options;
}

StepPlan plan_of(const Sequential& model, const json& setup) {
  const json& mesh = setup.at("mesh");
  StepDecisions decisions{
      .schedule = ScheduleKind::k1f1b,
      .mesh = {{Axis::kPipeline, mesh.value("pp", 1)}, {Axis::kData, mesh.value("dp", 1)}},
      .micro_batch = setup.at("micro_batch")};
  for (int stage = 0; stage <= decisions.mesh[Axis::kPipeline]; ++stage)
    decisions.partition.bounds.push_back(model.num_layers() * stage /
                                         decisions.mesh[Axis::kPipeline]);
  for (int layer = 0; layer < model.num_layers(); ++layer)
    if (setup.at("recompute") && model.layer(layer).recomputable()) decisions.recompute.add(layer);
  return plan_steps(model, std::move(decisions));
}

void write(const std::string& path, const Tensors& tensors) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor});
  write_safetensors(path, named);
}

void train(const json& setup, const std::string& folder) {
  const RecommenderInputs inputs{.numeric = setup.at("numeric"),
                                 .row_widths = setup.at("row_widths")};
  const Sequential model = make_recommender(options_of(setup), inputs);
  const StepPlan plan = plan_of(model, setup);
  std::vector<MiniBatch> steps;
  for (const json& step : setup.at("steps")) steps.push_back(batch_of(step));
  const MiniBatch evaluated = batch_of(setup.at("evaluate"));
  Tensors first, last, gradients, scores;
  scores["scores"] = at::empty({evaluated.samples}, at::kFloat);
  gradients["rows"] = at::empty(steps[0].inputs[1].sizes(), at::kFloat);
  std::mutex mutex;
  run_thread_ranks({.ranks = plan.decisions().mesh.size()}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group,
                    {.machine = {.seed = 11},
                     .optimizer = {.kind = OptimizerKind::kSgd, .weight_decay = 0, .momentum = 0}});
    trainer.initialise();
    trainer.gradient_step(steps[0]);
    {
      const std::lock_guard lock(mutex);
      assemble(trainer.owned_weights(), first);
      assemble(trainer.owned_gradients(), gradients);
      const ReplicaTensor rows = trainer.input_gradient("rows");
      if (rows.values.defined())
        gradients["rows"].narrow(0, rows.first_sample, rows.values.size(0)).copy_(rows.values);
    }
    for (const MiniBatch& step : steps) {
      const StepOutcome outcome = trainer.step(step, setup.at("learning_rate"));
      if (group.rank() > 0) continue;
      std::puts(
          json{{"loss", outcome.loss}, {"gradient_norm", outcome.gradient_norm}}.dump().c_str());
    }
    const ReplicaScores part = trainer.score(evaluated);
    const std::lock_guard lock(mutex);
    assemble(trainer.owned_weights(), last);
    std::ranges::copy(part.values, scores["scores"].data_ptr<float>() + part.first_sample);
  });
  write(folder + "/first.safetensors", first);
  write(folder + "/last.safetensors", last);
  write(folder + "/gradients.safetensors", gradients);
  write(folder + "/scores.safetensors", scores);
}

}  // namespace
}  // namespace strata

int main(int count, char** arguments) {
  try {
    if (count != 2) {
      std::fprintf(stderr, "parity_recommender FOLDER < case.json\n");
      return 2;
    }
    strata::train(nlohmann::json::parse(std::cin), arguments[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return strata::exit_code(error);
  }
}
