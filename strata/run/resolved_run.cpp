#include "strata/run/resolved_run.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/units.h"
#include "strata/comm/ranks.h"
#include "strata/plan/search/shared_host.h"
#include "strata/run/plan_request.h"
#include "strata/run/planned_run.h"
#include "strata/run/recipe_file.h"
#include "strata/run/recipe_machine.h"

namespace strata {
namespace {

// `mesh: auto` without sizes: as many ranks as devices.
MeshOptions requested_mesh(const Recipe& recipe, std::int64_t devices) {
  MeshOptions requested = recipe.mesh;
  if (requested.ranks == 0 && requested.axes.size() == 1)
    requested.ranks = std::max<std::int64_t>(1, devices);
  return requested;
}

std::int64_t cores_here() { return std::thread::hardware_concurrency(); }

PlanRequest request_of(Recipe candidate, const MeshOptions& mesh, const MachineProfile& machine,
                       const RankDevices& devices = {}) {
  candidate.mesh = mesh;
  return plan_request(candidate, model_of(candidate), machine, /*processes=*/1, devices);
}

// A mesh that was searched depends on the GPUs of the machines, and must be the same in all
// processes.
std::string fingerprint_of(const Recipe& recipe, const MeshOptions& mesh) {
  return recipe.text + "\n# mesh found: " + mesh.axes.text() + ", zero " +
         std::to_string(mesh.zero.stage) + ", " + name_of(mesh.schedule) + ", virtual_stages " +
         std::to_string(mesh.virtual_stages);
}

MeshSearch search_mesh(const Recipe& recipe) {
  const Rendezvous rendezvous = rendezvous_from_environment();
  const DeviceKind kind = recipe.device_kind();
  const int gpus = gpus_here(kind);
  // One rank per process, or per GPU, or per core.
  const MeshOptions requested =
      requested_mesh(recipe, rendezvous.processes > 1 ? rendezvous.processes
                             : gpus > 0               ? gpus
                                                      : cores_here());
  const RankDevices devices = rank_devices(kind, requested.rank_count(), rendezvous);
  const MachineProfile assumed = with_device_of(recipe, {});
  return search_mesh(requested, recipe.task->mesh_limits(recipe), [&](const MeshOptions& mesh) {
    return request_of(recipe, mesh, assumed, devices);
  });
}

MeshSearch search_mesh(const Recipe& recipe, const MachineProfile& machine) {
  // Assumes one GPU if the profile does not state their number.
  const std::int64_t cores = machine.host.cores > 0 ? machine.host.cores : cores_here();
  const std::int64_t devices = machine.peers.devices > 0
                                   ? machine.peers.devices
                                   : (machine.device.kind == MachineKind::kCuda ? 1 : cores);
  return search_mesh(requested_mesh(recipe, devices), recipe.task->mesh_limits(recipe),
                     [&](const MeshOptions& mesh) { return request_of(recipe, mesh, machine); });
}

template <typename Search>
void take_mesh(ResolvedRun& run, const Search& search) {
  run.fingerprint = run.recipe.text;
  if (!run.recipe.mesh.automatic) return;
  run.search = search();
  run.fingerprint = fingerprint_of(run.recipe, run.search->best());
  run.recipe.mesh = run.search->best();
  run.recipe.mesh.automatic = false;
}

// Resolves a recipe whose micro-batch may be open. `resolved`: of one whose micro-batch is decided;
// `tried`: plans a resolved run.
template <typename Resolve, typename Try>
ResolvedRun with_micro_batch_chosen(const Recipe& recipe, Resolve resolved, Try tried) {
  if (recipe.train.micro_batch > 0) return resolved(recipe);
  std::map<std::int64_t, ResolvedRun> runs;
  const std::int64_t replicas = recipe.mesh.automatic ? 1 : recipe.mesh.axes[Axis::kData];
  MicroBatchChoice choice = choose_micro_batch(
      (recipe.train.mini_batch + replicas - 1) / replicas, [&](std::int64_t samples) {
        runs.emplace(samples, resolved(with_micro_batch(recipe, samples)));
        MicroBatchTrial trial = tried(runs.at(samples));
        trial.samples = samples;
        return trial;
      });
  ResolvedRun run = std::move(runs.at(choice.samples()));
  run.micro_batch = std::move(choice);
  return run;
}

MicroBatchTrial trial_of(const Plan& plan) {
  return {.fits = true,
          .step_seconds = plan.simulation.step_seconds,
          .peak_bytes = peak_bytes(plan.ledger)};
}

// How a plan exceeds the memory of this machine, which matters if memory.device sets no limit; ""
// if it does not.
std::string excess_here(const Recipe& recipe, const PlannedRun& run) {
  const bool on_cpu = recipe.device_kind() == DeviceKind::kCpu;
  const SharedHost host = shared_host(run);
  const std::int64_t here = on_cpu ? host.bytes : run.plan.machine.device.bytes.count;
  const std::int64_t needed = on_cpu ? process_bytes(run.plan, host).total()
                                     : peak_bytes(run.plan.ledger) + run.plan.costs.context_bytes;
  if (here == 0 || needed <= here) return "";
  return "needs " + format_bytes(needed) + " of " + format_bytes(here);
}

// Plans with assumed seconds first, so that nothing is measured that does not fit.
MicroBatchTrial trial_here(const ResolvedRun& run, bool measure) {
  const PlannedRun assumed = plan_run(run, /*probe=*/false);
  if (const std::string excess = excess_here(run.recipe, assumed); !excess.empty())
    return {.reason = excess};
  return trial_of(measure ? plan_run(run).plan : assumed.plan);
}

void require_one_process(const Recipe& recipe) {
  const int processes = rendezvous_from_environment().processes;
  if (recipe.train.micro_batch > 0 || processes <= 1) return;
  constexpr ErrorSource kErrors{"run.resolve",
                                "set train.micro_batch to the size that strata plan chooses"};
  throw kErrors.user("train.micro_batch", "processes could measure, and choose, different sizes",
                     "a number of samples", "0, in " + std::to_string(processes) + " processes");
}

}  // namespace

ResolvedRun resolve(Recipe recipe, const ResolveOptions& options) {
  require_one_process(recipe);
  const auto resolved = [](Recipe decided) {
    ResolvedRun run{.recipe = std::move(decided)};
    run.machine = this_machine(run.recipe);
    take_mesh(run, [&] { return search_mesh(run.recipe); });
    return run;
  };
  ResolvedRun run = with_micro_batch_chosen(recipe, resolved, [&](ResolvedRun tried) {
    tried.on_measuring = options.on_measuring;
    return trial_here(tried, options.measure);
  });
  run.on_measuring = options.on_measuring;
  return run;
}

ResolvedRun resolve(Recipe recipe, const MachineProfile& machine,
                    const ParameterBytes* convention) {
  const auto resolved = [&](Recipe decided) {
    ResolvedRun run{.recipe = std::move(decided)};
    run.machine = with_device_of(run.recipe, machine);
    take_mesh(run, [&] { return search_mesh(run.recipe, run.machine); });
    return run;
  };
  return with_micro_batch_chosen(
      on_machine(std::move(recipe), machine), resolved,
      [&](const ResolvedRun& run) { return trial_of(plan_run_elsewhere(run, convention).plan); });
}

}  // namespace strata
