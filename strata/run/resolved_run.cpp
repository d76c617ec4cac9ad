#include "strata/run/resolved_run.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/comm/ranks.h"
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
// `planned`: of a resolved run.
template <typename Resolve, typename PlanOf>
ResolvedRun with_micro_batch_chosen(const Recipe& recipe, Resolve resolved, PlanOf planned) {
  if (recipe.train.micro_batch > 0) return resolved(recipe);
  std::map<std::int64_t, ResolvedRun> runs;
  const std::int64_t replicas = recipe.mesh.automatic ? 1 : recipe.mesh.axes[Axis::kData];
  MicroBatchChoice choice = choose_micro_batch(
      (recipe.train.mini_batch + replicas - 1) / replicas, [&](std::int64_t samples) {
        const ResolvedRun& run =
            runs.emplace(samples, resolved(with_micro_batch(recipe, samples))).first->second;
        const Plan plan = planned(run);
        return MicroBatchTrial{.samples = samples,
                               .fits = true,
                               .step_seconds = plan.simulation.step_seconds,
                               .peak_bytes = peak_bytes(plan.ledger)};
      });
  ResolvedRun run = std::move(runs.at(choice.samples()));
  run.micro_batch = std::move(choice);
  return run;
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
    return plan_run(tried, options.measure).plan;
  });
  run.on_measuring = options.on_measuring;
  return run;
}

ResolvedRun resolve(Recipe recipe, const MachineProfile& machine) {
  const auto resolved = [&](Recipe decided) {
    ResolvedRun run{.recipe = std::move(decided)};
    run.machine = with_device_of(run.recipe, machine);
    take_mesh(run, [&] { return search_mesh(run.recipe, run.machine); });
    return run;
  };
  return with_micro_batch_chosen(
      on_machine(std::move(recipe), machine), resolved,
      [](const ResolvedRun& run) { return plan_run_elsewhere(run).plan; });
}

}  // namespace strata
