// The reference computes the same gradients in the simplest way: one rank, no recompute, but the
// same micro-batches, because the comparison includes the order of their sums.
#include "strata/run/verify.h"
#include "strata/disk/temporary_disk.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "strata/base/errors.h"
#include "strata/checkpoint/named_state.h"
#include "strata/comm/ranks.h"
#include "strata/run/plan_request.h"
#include "strata/run/rank_options.h"
#include "strata/run/resume_point.h"
#include "strata/run/training_run.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

struct Gradients {
  double loss = 0;
  std::map<std::string, at::Tensor> by_name;
};

Gradients replay(const Recipe& recipe, const Sequential& model, const StepPlan& plan,
                 int threads_per_rank, const std::string& resume) {
  const std::unique_ptr<TaskData> data = open_data(recipe, resume);
  const std::unique_ptr<TaskRun> task = recipe.task->start(
      recipe, plan, *data,
      {.steps_done = resume_position(recipe, resume).steps_done, .resume = resume});
  const TemporaryDisk disk(recipe.memory.disk.path, "verify");
  Gradients result;
  std::mutex mutex;
  run_thread_ranks({.ranks = plan.decisions().mesh.size(),
                    .threads_per_rank = threads_per_rank,
                    .device = recipe.rank_device()},
                   [&](Group& group, MemoryAccount&) {
                     TrainerOptions options = trainer_options(recipe);
                     options.outer = {};
                     // Replicas that are inside a round begin with the mean of their weights.
                     if (options.optimizer.kind == OptimizerKind::kZeroOneAdam)
                       options.optimizer.kind = OptimizerKind::kAdamW;
                     options.disk.path = disk.path();
                     options.disk.file.replace = true;
                     const std::unique_ptr<TaskRank> part = task->rank(group);
                     options.rows = part->rows();
                     Trainer trainer(model, plan, group, std::move(options));
                     TrainingPosition position;
                     if (resume.empty()) {
                       recipe.task->initialise(trainer);
                     } else {
                       position = load_trainer(trainer, recipe.task->checkpoint_model(), resume);
                     }
                     part->begin(position);
                     const MiniBatch batch = data->at(position.samples_seen);
                     const double loss = trainer.gradient_step(batch).loss;
                     const std::lock_guard lock(mutex);
                     result.loss = loss;
                     assemble(trainer.owned_gradients(), result.by_name);
                   });
  return result;
}

void compare(LayerComparison& layer, const std::string& weight, const at::Tensor& a,
             const at::Tensor& b) {
  layer.elements += a.numel();
  layer.largest_gradient = std::max(layer.largest_gradient, b.abs().max().item<double>());
  const std::int64_t differing = (a != b).sum().item<std::int64_t>();
  if (differing == 0) return;
  layer.differing += differing;
  const double difference = (a - b).abs().max().item<double>();
  if (layer.first_weight.empty()) layer.first_weight = weight;
  if (difference > layer.largest_difference) layer.worst_weight = weight;
  layer.largest_difference = std::max(layer.largest_difference, difference);
}

// Replicas that train apart have gradients of their own, which no one rank has.
void require_common_gradients(const Recipe& recipe) {
  const int replicas = recipe.mesh.axes[Axis::kData];
  if (!recipe.outer.is_on() || replicas == 1) return;
  throw UserError({.operation = "run.verify",
                   .where = "train.outer_steps.every",
                   .what = "replicas that train apart have no common gradients to compare",
                   .expected = "train.outer_steps.every: 0, or mesh.dp: 1",
                   .got = "train.outer_steps.every: " + std::to_string(recipe.outer.every) +
                          ", mesh.dp: " + std::to_string(replicas),
                   .fix = "verify what replicas compute with --set train.outer_steps.every=0"});
}

// One rank sends nothing, so its gradients and weights are not rounded to integers.
void require_full_traffic(const Recipe& recipe) {
  const Traffic& traffic = recipe.mesh.zero.traffic;
  if (traffic.is_full() || recipe.mesh.axes.weight_ranks() == 1) return;
  const bool gradients = traffic.gradients != TrafficFormat::kFull;
  throw UserError({.operation = "run.verify",
                   .where = gradients ? "mesh.traffic.gradients" : "mesh.traffic.weights",
                   .what = "what ranks send is rounded to integers, so it differs from one rank's",
                   .expected = "full",
                   .got = name_of(gradients ? traffic.gradients : traffic.weights),
                   .fix = "verify the mesh with --set mesh.traffic.gradients=full --set "
                          "mesh.traffic.weights=full"});
}

}  // namespace

const LayerComparison* Verification::first_difference() const {
  for (const LayerComparison& layer : layers) {
    const double allowed = bits_expected ? 0 : kGradientTolerance * layer.largest_gradient;
    if (layer.differing > 0 && layer.largest_difference >= allowed) return &layer;
  }
  return nullptr;
}

bool Verification::holds() const {
  const double allowed = bits_expected ? 0 : kLossTolerance * std::abs(reference_loss);
  return std::abs(mesh_loss - reference_loss) <= allowed && !first_difference();
}

Verification verify(const Recipe& input, const PlannedRun& run, const std::string& resume) {
  require_common_gradients(input);
  require_full_traffic(input);
  Recipe recipe = input;
  if (std::shared_ptr<const Task> task = input.task->replayed(resume))
    recipe.task = std::move(task);
  const Sequential one = whole_model_of(recipe);
  const StepDecisions& decided = run.plan.decisions();
  const StepPlan reference_plan = plan_steps(one, {.schedule = ScheduleKind::kGpipe,
                                                   .levels = Recompute::kNone,
                                                   .micro_batch = decided.micro_batch});
  StepDecisions decisions = run.plan.steps.decisions();
  decisions.replicas_apart = false;      // there is one
  decisions.tiers.gradient_buffers = 0;  // all gradients are kept for the comparison
  const Gradients mesh = replay(recipe, run.model, plan_steps(run.model, std::move(decisions)),
                                run.threads_per_rank, resume);
  const Gradients reference = replay(recipe, one, reference_plan, run.threads_per_rank, resume);

  Verification result{.mesh_loss = mesh.loss,
                      .reference_loss = reference.loss,
                      .bits_expected = decided.mesh.weight_ranks() == 1 &&
                                       decided.mesh[Axis::kTensor] == 1 &&
                                       !run.model.split().context.in_blocks()};
  for (int layer = 0; layer < one.num_layers(); ++layer) {
    LayerComparison comparison{.layer = one.name(layer)};
    const LayerLayout& layout = one.layout(layer);
    for (std::size_t i = 0; i < layout.specs.size(); ++i) {
      // Running statistics have no gradient.
      if (layout.placements[i].borrowed || layout.specs[i].statistic != Statistic::kNone) continue;
      const std::string name = one.name(layer) + "." + layout.specs[i].name;
      compare(comparison, name, mesh.by_name.at(name), reference.by_name.at(name));
    }
    result.layers.push_back(std::move(comparison));
  }
  return result;
}

}  // namespace strata
