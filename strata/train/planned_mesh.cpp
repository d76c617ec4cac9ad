#include "strata/train/planned_mesh.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "strata/comm/ranks.h"
#include "strata/train/plan_request.h"
#include "strata/train/rank_devices.h"

namespace strata {
namespace {

// `mesh: auto` alone: as many ranks as there are devices.
MeshOptions asked_mesh(const Recipe& recipe, std::int64_t devices) {
  MeshOptions asked = recipe.mesh;
  if (asked.ranks == 0 && asked.mesh().size() == 1)
    asked.ranks = std::max<std::int64_t>(1, devices);
  return asked;
}

std::int64_t cores_here() { return std::thread::hardware_concurrency(); }

PlanRequest request_of(Recipe candidate, const MeshOptions& mesh, const MachineProfile& machine) {
  candidate.mesh = mesh;
  return plan_request(candidate, model_of(candidate), machine);
}

Recipe with_found(Recipe recipe, const MeshOptions& found) {
  recipe.mesh = found;
  recipe.mesh.automatic = false;
  return recipe;
}

}  // namespace

MeshSearch search_mesh(const Recipe& recipe) {
  const Rendezvous rendezvous = rendezvous_from_environment();
  const int gpus = recipe.device_kind() == DeviceKind::kCuda ? cuda_backend().count() : 0;
  // A rank for each process, or for each GPU, or each core.
  const MeshOptions asked = asked_mesh(recipe, rendezvous.processes > 1 ? rendezvous.processes
                                               : gpus > 0               ? gpus
                                                                        : cores_here());
  const auto ranks = static_cast<int>(asked.ranks > 0 ? asked.ranks : asked.mesh().size());
  const RankDevices devices = rank_devices(recipe, ranks, rendezvous);
  return search_mesh(asked, mesh_limits(recipe), [&](const MeshOptions& mesh) {
    return on_devices(request_of(recipe, mesh, {}), mesh.mesh(), devices, rendezvous.processes);
  });
}

MeshSearch search_mesh(const Recipe& recipe, const MachineProfile& machine) {
  // Of one GPU, or of a number that nobody has said, there is one.
  const std::int64_t cores = machine.host.cores > 0 ? machine.host.cores : cores_here();
  const std::int64_t devices = machine.peers.devices > 0
                                   ? machine.peers.devices
                                   : (machine.device.kind == MachineKind::kCuda ? 1 : cores);
  return search_mesh(asked_mesh(recipe, devices), mesh_limits(recipe),
                     [&](const MeshOptions& mesh) { return request_of(recipe, mesh, machine); });
}

Recipe with_mesh(Recipe recipe) {
  if (!recipe.mesh.automatic) return recipe;
  return with_found(recipe, search_mesh(recipe).best());
}

Recipe with_mesh(Recipe recipe, const MachineProfile& machine) {
  if (!recipe.mesh.automatic) return recipe;
  return with_found(recipe, search_mesh(recipe, machine).best());
}

}  // namespace strata
