#include "strata/train/planned_run.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "strata/models/model.h"
#include "strata/pipeline/costs.h"
#include "strata/pipeline/probe.h"
#include "strata/pipeline/processor.h"

namespace strata {
namespace {

int as_int(std::int64_t number) { return static_cast<int>(number); }

at::ScalarType precision_of(const Recipe& recipe) {
  if (recipe.train.precision == "bf16") return at::kBFloat16;
  return recipe.train.precision == "fp16" ? at::kHalf : at::kFloat;
}

CostRequest cost_request(const Recipe& recipe, bool keep_intermediates) {
  const std::vector<std::int64_t> shape = {recipe.train.micro_batch, recipe.model.context};
  return {.batch_inputs = {{shape, at::kLong}, {shape, at::kLong}},
          .samples = (recipe.train.mini_batch + recipe.mesh.dp - 1) / recipe.mesh.dp,
          .micro_batch = recipe.train.micro_batch,
          .optimizer_slots = as_int(
              static_cast<std::int64_t>(make_optimizer(recipe.optimizer)->slot_names().size())),
          .precision = precision_of(recipe),
          .keep_intermediates = keep_intermediates};
}

Sequential model_of(const Recipe& recipe) {
  return make_model(recipe.model, DecoderOutput::kLoss,
                    {as_int(recipe.mesh.tp), recipe.mesh.sequence_parallel}, precision_of(recipe));
}

PlanRequest plan_request(const Recipe& recipe, const Sequential& model, int processes = 1) {
  const TrainOptions& train = recipe.train;
  PlanRequest request{.wiring = model.wiring(),
                      .costs_none = byte_costs(model, cost_request(recipe, true)),
                      .costs_cheap = byte_costs(model, cost_request(recipe, false)),
                      .shape = {.ranks = as_int(recipe.mesh.pp),
                                .micro_batches = as_int(count_micro_batches(
                                    train.mini_batch, as_int(recipe.mesh.dp), train.micro_batch)),
                                .virtual_stages = as_int(recipe.mesh.virtual_stages)},
                      .schedule = recipe.mesh.schedule,
                      .memory = recipe.memory,
                      .micro_batch = train.micro_batch,
                      .mesh = mesh_request(recipe.mesh)};
  if (processes > 1) {
    request.mesh.rates = kProcessRates;
    // Processes of one machine read each other's memory unless they are told not to.
    request.mesh.copies_pieces = std::getenv("STRATA_SOCKETS") != nullptr;
  }
  request.mesh.weight_element_bytes = static_cast<int>(c10::elementSize(precision_of(recipe)));
  request.mesh.tensor = transformer_traffic(request.wiring, request.costs_cheap, request.mesh);
  return request;
}

TrainerOptions trainer_options(const Recipe& recipe, const Plan& plan) {
  return {.schedule = recipe.mesh.schedule,
          .mesh = recipe.mesh.mesh(),
          .zero = as_int(recipe.mesh.zero),
          .shard_ranks = as_int(recipe.mesh.shard_ranks),
          .reduce_each = plan.sharding.reduce_each,
          .virtual_stages = as_int(recipe.mesh.virtual_stages),
          .partition = plan.partition,
          .recompute = plan.recompute,
          .keep_intermediates = recipe.memory.recompute == "none",
          .micro_batch = recipe.train.micro_batch,
          .seed = static_cast<std::uint64_t>(recipe.train.seed),
          .clip = recipe.train.clip,
          .label_smoothing = recipe.train.label_smoothing,
          .precision = precision_of(recipe),
          .optimizer = recipe.optimizer};
}

// What the probe decides, and so what processes could disagree on.
std::string decisions_of(const PlannedRun& run) {
  return nlohmann::json{{"bounds", run.trainer.partition.bounds},
                        {"recompute", run.trainer.recompute},
                        {"reduce_each", run.trainer.reduce_each}}
      .dump();
}

void apply(const std::string& decisions, TrainerOptions& trainer) {
  const auto json = nlohmann::json::parse(decisions);
  json.at("bounds").get_to(trainer.partition.bounds);
  json.at("recompute").get_to(trainer.recompute);
  json.at("reduce_each").get_to(trainer.reduce_each);
}

// With mesh.auto, the mesh that the search finds; estimates alone, so the same in every process.
Recipe with_mesh(Recipe recipe) {
  if (!recipe.mesh.automatic) return recipe;
  recipe.mesh = search_mesh(recipe).best();
  recipe.mesh.automatic = false;
  return recipe;
}

}  // namespace

MeshSearch search_mesh(const Recipe& recipe) {
  MeshOptions asked = recipe.mesh;
  if (asked.ranks == 0 && asked.mesh().size() == 1) {
    // `mesh: auto` alone: a rank for each process, or for each core of this one.
    const int processes = rendezvous_from_environment().processes;
    asked.ranks = processes > 1 ? processes : std::max(1u, std::thread::hardware_concurrency());
  }
  return search_mesh(asked, mesh_limits(recipe), [&](const MeshOptions& mesh) {
    Recipe candidate = recipe;
    candidate.mesh = mesh;
    return plan_request(candidate, model_of(candidate));
  });
}

PlannedRun plan_run(const Recipe& given, bool probe, int processes) {
  const Recipe recipe = with_mesh(given);
  Sequential model = model_of(recipe);
  const int ranks = recipe.mesh.mesh().size(), threads = recipe.threads_per_rank();
  PlanRequest request = plan_request(recipe, model, processes);
  // With estimated seconds first: what doesn't fit is refused before a probe allocates anything.
  Plan plan = make_plan(request);
  const ProbeOptions options{.ranks = ranks,
                             .threads_per_rank = threads,
                             .optimizer = recipe.optimizer.kind,
                             .cache_file = default_probe_cache()};
  std::vector<std::string> keys;
  if (probe) {
    const bool keep = recipe.memory.recompute == "none";
    const CostRequest costs = cost_request(recipe, keep);
    probe_seconds(keep ? request.costs_none : request.costs_cheap, model, costs, options);
    keys = probe_keys(model, costs, options);
    plan = make_plan(request);
  }
  TrainerOptions trainer = trainer_options(recipe, plan);
  return {.model = std::move(model),
          .plan = std::move(plan),
          .trainer = std::move(trainer),
          .mesh = recipe.mesh,
          .ranks = ranks,
          .threads_per_rank = threads,
          .probe_cache = probe ? options.cache_file : "",
          .probe_keys = std::move(keys)};
}

std::string precision_advice(const Recipe& recipe, bool measure) {
  const ProcessorIdentity processor = ProcessorIdentity::of_this_machine();
  std::optional<PrecisionRates> rates = load_rates(default_rates_file(), processor);
  // fp32 is what other precisions are compared with: it needs no measurement to be advised.
  if (!rates && measure && precision_of(recipe) != at::kFloat) {
    rates = measure_precision_rates(processor.cores);
    save_rates(default_rates_file(), processor, *rates);
  }
  if (!rates) return "";
  const std::string slow = slow_precision_text(precision_of(recipe), *rates);
  return slow.empty()
             ? recipe.train.precision + "; this processor is fast in " + fastest_text(*rates)
             : slow;
}

RanksOptions ranks_options(const Recipe& given) {
  const Recipe recipe = with_mesh(given);
  return {
      .ranks = recipe.mesh.mesh().size(),
      .threads_per_rank = recipe.threads_per_rank(),
      .device_bytes = recipe.memory.device.count,
      .mesh = recipe.mesh.mesh(),
      .fingerprint = given.text,
      .transport = recipe.mesh.transport == "ucx" ? TransportKind::kUcx : TransportKind::kSockets};
}

World join_world(const Recipe& recipe) { return World(ranks_options(recipe)); }

PlannedRun plan_run(World& world, const Recipe& recipe) {
  std::optional<PlannedRun> run;
  const std::string decisions = world.agree([&] {
    run = plan_run(recipe, /*probe=*/true, world.processes());
    return decisions_of(*run);
  });
  if (!run) run = plan_run(recipe, /*probe=*/false, world.processes());
  apply(decisions, run->trainer);
  return std::move(*run);
}

}  // namespace strata
