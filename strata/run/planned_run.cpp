// A recipe is first planned with estimated seconds, so that a model that does not fit is refused
// before a probe allocates.
#include "strata/run/planned_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "strata/measure/probe.h"
#include "strata/measure/probe_cache.h"
#include "strata/plan/search/process_bytes.h"
#include "strata/run/plan_request.h"
#include "strata/run/rank_devices.h"
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

int ranks_of_process(const Recipe& recipe, int processes) {
  return (recipe.mesh.axes.size() + processes - 1) / processes;
}

// The request for this machine. `world` null: ranks are threads of one process.
PlanRequest request_here(const Recipe& recipe, const Sequential& model,
                         const MachineProfile& machine, const World* world) {
  const Mesh& mesh = recipe.mesh.axes;
  const int processes = world ? world->processes() : 1;
  const RankDevices devices =
      world ? rank_devices(recipe, *world) : rank_devices(recipe, mesh.size(), Rendezvous());
  return on_devices(plan_request(recipe, model, machine, processes), mesh, devices, processes);
}

// As many ranks measure in parallel as will compute in parallel.
int probing_ranks(const Recipe& recipe, const SharedHost& host, int processes) {
  if (recipe.device_kind() == DeviceKind::kCpu) return ranks_side_by_side(host);
  return std::min(ranks_of_process(recipe, processes), cuda_backend().count());
}

// Measuring needs no more memory of the process than training will.
std::int64_t bytes_to_measure(const Plan& plan, const SharedHost& host) {
  return std::min(kProbeBytes, process_bytes(plan, host).accounts);
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
  const int processes = world ? world->processes() : 1;
  if (probe) recipe.rank_device();  // throws if the device is missing
  PlannedRun run = unplanned_run(recipe);
  PlanRequest request = request_here(recipe, run.model, resolved.machine, world);
  request.update_threads = run.threads_per_rank;
  const bool on_cores = recipe.device_kind() == DeviceKind::kCpu;
  const SharedHost host = shared_host(run, processes);
  const auto share = [&](CostTable& costs) {
    if (on_cores) share_cores(costs, host);
  };
  share(request.costs_none), share(request.costs_cheap);
  // First with estimated seconds: a model that does not fit is refused before a probe allocates.
  run.plan = make_plan(request);
  recipe.task->check_plan(run.plan.decisions(), processes);
  if (!probe) return run;
  // If ranks share cores, a measurement would include waits or not, depending on the system's
  // thread switches; if they share a GPU, it would include each other's work. So the sharing is
  // computed instead, and what training later measures is not saved as the layers' own seconds.
  const ProbeOptions options{
      .ranks = probing_ranks(recipe, host, processes),
      .threads_per_rank = run.threads_per_rank,
      .most_bytes = on_cores ? bytes_to_measure(run.plan, host) : kProbeBytes,
      .optimizer = recipe.optimizer.kind,
      .cache_file = default_probe_cache(),
      .tell = resolved.on_measuring};
  const bool keep = recipe.memory.recompute == RecomputeMode::kNone;
  CostRequest costs = cost_request(recipe, keep, request.machine);
  costs.device = recipe.rank_device();
  CostTable& probed = keep ? request.costs_none : request.costs_cheap;
  probe_seconds(probed, run.model, costs, options);
  share(probed);
  request.costs_none.rows = request.costs_cheap.rows =
      recipe.task->measured_rows_cost(recipe, request.machine, data);
  request.updates_measured =
      recipe.rank_device().kind == DeviceKind::kCpu;  // otherwise the device ran the updates
  run.plan = make_plan(request);
  recipe.task->check_plan(run.plan.decisions(), processes);
  const bool shares = on_cores ? threads_per_core(host) > 1 : !request.costs_none.devices.empty();
  if (!shares) run.probe_cache = options.cache_file;
  run.probe_keys = probe_keys(run.model, costs, options);
  return run;
}

PlannedRun plan_run_elsewhere(const ResolvedRun& resolved, const ParameterBytes* convention) {
  const Recipe& recipe = resolved.recipe;
  PlannedRun run = unplanned_run(recipe);
  run.plan =
      make_plan(with_convention(plan_request(recipe, run.model, resolved.machine), convention));
  recipe.task->check_plan(run.plan.decisions(), /*processes=*/1);
  return run;
}

PlannedRun plan_run(World& world, const ResolvedRun& resolved, const std::string& follow,
                    const TaskData* data) {
  std::optional<PlannedRun> run;
  const std::string decided = world.agree([&] {
    if (!follow.empty()) return follow;
    run = plan_run(resolved, /*probe=*/true, &world, data);
    return decisions_text(run->plan);
  });
  if (run) return std::move(*run);
  run = unplanned_run(resolved.recipe);
  run->plan = follow_plan(request_here(resolved.recipe, run->model, {}, &world), decided);
  return std::move(*run);
}

}  // namespace strata
