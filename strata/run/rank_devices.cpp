#include "strata/run/rank_devices.h"

#include <algorithm>
#include <utility>

#include "strata/plan/search/shared_devices.h"

namespace strata {
namespace {

RankDevices devices_here(const Recipe& recipe) {
  RankDevices devices;
  if (recipe.device_kind() != DeviceKind::kCuda) return devices;
  devices.here = cuda_backend().count();
  for (int index = 0; index < devices.here; ++index) {
    const std::int64_t bytes = cuda_backend().facts(index).bytes;
    devices.bytes = index == 0 ? bytes : std::min(devices.bytes, bytes);
  }
  return devices;
}

}  // namespace

RankDevices rank_devices(const Recipe& recipe, int ranks, const Rendezvous& rendezvous) {
  RankDevices devices = devices_here(recipe);
  const int of_process = (ranks + rendezvous.processes - 1) / rendezvous.processes;
  if (devices.here > 0)
    devices.of_rank =
        devices_in_turns(ranks, of_process * std::max(1, rendezvous.local_processes), devices.here);
  return devices;
}

RankDevices rank_devices(const Recipe& recipe, const World& world) {
  RankDevices devices = devices_here(recipe);
  if (devices.here > 0) devices.of_rank = world.device_ids();
  return devices;
}

PlanRequest on_devices(PlanRequest request, const Mesh& mesh, const RankDevices& devices,
                       int processes) {
  request.costs_none.devices = request.costs_cheap.devices =
      shared_devices(mesh, devices.of_rank, devices.bytes);
  // Ranks of one process that share a GPU do not record steps, because they would record each
  // other's work.
  const bool shares = devices.here > 0 && mesh.size() > devices.here * processes;
  if (shares && request.recording == RecordingPlan::kIfItFits)
    request.recording = RecordingPlan::kNever;
  return request;
}

}  // namespace strata
