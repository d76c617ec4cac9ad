#include "strata/train/planned_run.h"

#include "strata/models/gpt.h"
#include "strata/pipeline/costs.h"

namespace strata {
namespace {

CostRequest cost_request(const Recipe& recipe, bool keep_intermediates) {
  const std::vector<std::int64_t> shape = {recipe.train.micro_batch, recipe.model.context};
  return {
      .batch_inputs = {{shape, at::kLong}, {shape, at::kLong}},
      .samples = recipe.train.mini_batch,
      .micro_batch = recipe.train.micro_batch,
      .optimizer_slots = static_cast<int>(make_optimizer(recipe.optimizer)->slot_names().size()),
      .keep_intermediates = keep_intermediates};
}

PlanRequest plan_request(const Recipe& recipe, const Sequence& model) {
  const TrainOptions& train = recipe.train;
  return {.wiring = model.wiring(),
          .costs_none = byte_costs(model, cost_request(recipe, true)),
          .costs_cheap = byte_costs(model, cost_request(recipe, false)),
          .shape = {.ranks = static_cast<int>(recipe.mesh.pp),
                    .micro_batches = static_cast<int>((train.mini_batch + train.micro_batch - 1) /
                                                      train.micro_batch),
                    .virtual_stages = static_cast<int>(recipe.mesh.virtual_stages)},
          .schedule = recipe.mesh.schedule,
          .memory = recipe.memory,
          .micro_batch = train.micro_batch};
}

}  // namespace

PlannedRun plan_run(const Recipe& recipe, bool probe) {
  Sequence model = make_gpt(recipe.model);
  const int ranks = static_cast<int>(recipe.mesh.pp), threads = recipe.threads_per_rank();
  PlanRequest request = plan_request(recipe, model);
  // With estimated seconds first: what doesn't fit is refused before a probe allocates anything.
  Plan plan = make_plan(request);
  if (probe) {
    const bool keep = recipe.memory.recompute == "none";
    probe_seconds(keep ? request.costs_none : request.costs_cheap, model,
                  cost_request(recipe, keep),
                  {.ranks = ranks,
                   .threads_per_rank = threads,
                   .optimizer = recipe.optimizer.kind,
                   .cache_file = default_probe_cache()});
    plan = make_plan(request);
  }
  TrainerOptions trainer{.schedule = recipe.mesh.schedule,
                         .virtual_stages = static_cast<int>(recipe.mesh.virtual_stages),
                         .partition = plan.partition,
                         .recompute = plan.recompute,
                         .keep_intermediates = recipe.memory.recompute == "none",
                         .micro_batch = recipe.train.micro_batch,
                         .seed = static_cast<std::uint64_t>(recipe.train.seed),
                         .clip = recipe.train.clip,
                         .optimizer = recipe.optimizer};
  return {std::move(model), std::move(plan), std::move(trainer), ranks, threads};
}

}  // namespace strata
