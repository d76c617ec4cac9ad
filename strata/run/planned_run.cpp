#include "strata/run/planned_run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/error_source.h"
#include "strata/measure/probe.h"
#include "strata/measure/probe_cache.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/optimizer.h"
#include "strata/plan/search/recompute_choice.h"
#include "strata/plan/search/shared_host.h"
#include "strata/run/plan_request.h"
#include "strata/run/recipe_machine.h"
#include "strata/task/task.h"

namespace strata {
namespace {

PlannedRun unplanned_run(const Recipe& recipe) {
  return {.model = model_of(recipe),
          .mesh = recipe.mesh,
          .ranks = recipe.mesh.axes.size(),
          .threads_per_rank = recipe.threads_per_rank()};
}

int processes_of(const World* world) { return world ? world->processes() : 1; }

// The request for this machine. `world` null: ranks are threads of one process.
PlanRequest request_here(const Recipe& recipe, const PlannedRun& run, const SharedHost& host,
                         const MachineProfile& machine, const World* world) {
  const DeviceKind kind = recipe.device_kind();
  const RankDevices devices =
      world ? rank_devices(kind, run.ranks, *world) : rank_devices(kind, run.ranks, Rendezvous());
  PlanRequest request = plan_request(recipe, run.model, machine, processes_of(world), devices);
  request.update_threads = run.threads_per_rank;
  if (kind != DeviceKind::kCpu) return request;
  for (CostTable& costs : request.costs) share_cores(costs, host);
  return request;
}

using LevelKeys = std::map<Recompute, std::vector<std::string>>;

// Ranks that share cores or a GPU would measure each other's work, or not, depending on the
// system's thread switches. So as many ranks measure in parallel as can compute in parallel, and
// the sharing is computed instead. What training later measures is not saved then.
// Returns the keys of the probe cache by level and layer.
LevelKeys measure(PlanRequest& request, PlannedRun& run, const ResolvedRun& resolved,
                  const SharedHost& host, const TaskData* data) {
  const Recipe& recipe = resolved.recipe;
  const bool on_cores = recipe.device_kind() == DeviceKind::kCpu;
  CostRequest layers = cost_request(recipe, request.machine);
  layers.device = recipe.rank_device();
  const Recompute level = layers.recompute;
  std::vector<LevelTable> tables{{level, &request.costs[level]}};
  // Deeper levels are measured if a plan by `auto` needs them, and are not chosen otherwise.
  const bool chooses = recipe.memory.recompute == RecomputeMode::kAuto;
  for (const Recompute deeper : {Recompute::kProducts, Recompute::kAttention}) {
    if (!chooses) break;
    if (!recompute_choice_of(run.plan.decisions()).empty()) {
      tables.push_back({deeper, &request.costs[deeper]});
    } else {
      request.costs[deeper] = {};
    }
  }
  // Measuring needs no more memory of the process than training will.
  const std::int64_t accounts = process_bytes(run.plan, host).accounts;
  const ProbeOptions options{
      .ranks = on_cores ? ranks_side_by_side(host) : std::min(host.ranks, cuda_backend().count()),
      .threads_per_rank = run.threads_per_rank,
      .most_bytes = on_cores ? std::min(kProbeBytes, accounts) : kProbeBytes,
      .optimizer = recipe.optimizer.kind,
      .cache_file = default_probe_cache(),
      .report = resolved.on_measuring};
  const auto keys = probe_seconds(tables, run.model, layers, options);
  const RowsCost rows = recipe.task->measured_rows_cost(recipe, request.machine, data);
  for (const LevelTable& table : tables) {
    if (on_cores) share_cores(*table.costs, host);
    table.costs->rows = rows;
  }
  request.updates_measured = on_cores;  // otherwise the device ran the updates
  const bool shares = on_cores ? threads_per_core(host) > 1 : !request.mode_costs().devices.empty();
  // What training measures corrects the level that it uses alone, so that the next plan could not
  // compare levels.
  if (!shares && tables.size() == 1) run.probe_cache = options.cache_file;
  LevelKeys by_level;
  for (std::size_t t = 0; t < tables.size(); ++t) by_level[tables[t].level] = keys[t];
  return by_level;
}

// `what` is written for states that lie on a CPU's device.
void require_states_on_cpu(const Recipe& recipe, const PlannedRun& run, const std::string& field,
                           const std::string& what, const char* fix) {
  const ErrorSource errors{"run.plan", fix};
  const auto refuse = [&](const std::string& why, const std::string& expected,
                          const std::string& got) {
    throw errors.user(field, what + why, expected, got);
  };
  if (recipe.device_kind() != DeviceKind::kCpu)
    refuse(" has not been written for GPUs", "ranks on the CPU", "mesh.device: cuda");
  for (const LayerTiers& tiers : run.plan.decisions().tiers.layers)
    if (tiers.updates_on_host())
      refuse(" updates weights on the device, and this plan keeps their states on the host",
             "weights and states on the device", placement_text(run.plan.placement));
}

// Refuses decisions of the plan that the optimizer or the task cannot carry out.
void check_decisions(const Recipe& recipe, const PlannedRun& run, int processes) {
  const StepDecisions& decisions = run.plan.decisions();
  recipe.task->check_plan(decisions, processes);
  if (!updates_on_device_alone(recipe)) return;
  if (recipe.outer.is_on()) {
    require_states_on_cpu(recipe, run, "train.outer_steps", "an outer step",
                          "set train.outer_steps.every=0");
  } else {
    require_states_on_cpu(recipe, run, "train.optimizer.kind", name_of(recipe.optimizer.kind),
                          "set train.optimizer.kind=adamw");
  }
}

}  // namespace

SharedHost shared_host(const PlannedRun& run, int processes) {
  const DeviceFacts here = cpu_backend().facts(0);
  return {.ranks = (run.ranks + processes - 1) / processes,
          .threads_per_rank = run.threads_per_rank,
          .cores = std::max(1, here.multiprocessors),
          .bytes = here.bytes};
}

PlannedRun plan_run(const ResolvedRun& resolved, bool probe, const World* world,
                    const TaskData* data) {
  const Recipe& recipe = resolved.recipe;
  const int processes = processes_of(world);
  if (probe) recipe.rank_device();  // throws if the device is missing
  PlannedRun run = unplanned_run(recipe);
  const SharedHost host = shared_host(run, processes);
  PlanRequest request = request_here(recipe, run, host, resolved.machine, world);
  // First with assumed seconds: a model that does not fit is refused before a probe allocates.
  run.plan = make_plan(request);
  check_decisions(recipe, run, processes);
  if (!probe) return run;
  const LevelKeys keys = measure(request, run, resolved, host, data);
  run.plan = make_plan(request);
  for (int layer = 0; layer < run.model.num_layers(); ++layer)
    run.probe_keys.push_back(keys.at(run.plan.decisions().levels.of(layer))[layer]);
  check_decisions(recipe, run, processes);
  return run;
}

PlannedRun plan_run_elsewhere(const ResolvedRun& resolved, const ParameterBytes* convention) {
  const Recipe& recipe = resolved.recipe;
  PlannedRun run = unplanned_run(recipe);
  const PlanRequest request = plan_request(recipe, run.model, resolved.machine);
  run.plan = make_plan(with_convention(request, convention));
  check_decisions(recipe, run, /*processes=*/1);
  return run;
}

PlannedRun agree_on_plan(World& world, const ResolvedRun& resolved, const std::string& follow,
                         const TaskData* data) {
  const Recipe& recipe = resolved.recipe;
  std::optional<PlannedRun> run;
  const auto followed = [&](const std::string& decided) {
    PlannedRun run = unplanned_run(recipe);
    const SharedHost host = shared_host(run, world.processes());
    const PlanRequest request = request_here(recipe, run, host, with_device_of(recipe, {}), &world);
    run.plan = follow_plan(request, decided);
    return run;
  };
  const std::string decided = world.agree([&] {
    // What the text leaves open, such as the order of another schedule, is decided here, too.
    run = follow.empty() ? plan_run(resolved, /*probe=*/true, &world, data)
                         : followed(decisions_to_resume(follow, recipe.mesh.schedule));
    return decisions_text(run->plan);
  });
  return run ? std::move(*run) : followed(decided);
}

}  // namespace strata
