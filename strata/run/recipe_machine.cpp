#include "strata/run/recipe_machine.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/measure/byte_costs.h"
#include "strata/measure/processor.h"
#include "strata/plan/search/shared_devices.h"
#include "strata/task/task.h"

namespace strata {
namespace {

double known(double rate, double otherwise) { return rate > 0 ? rate : otherwise; }

// What this process knows of its GPUs; `of_rank` is still empty.
RankDevices devices_here(int gpus, int ranks, int processes) {
  RankDevices devices{.shared = ranks > gpus * processes};
  for (int index = 0; index < gpus; ++index) {
    const std::int64_t bytes = cuda_backend().facts(index).bytes;
    devices.bytes = index == 0 ? bytes : std::min(devices.bytes, bytes);
  }
  return devices;
}

// The part of the machine's host memory that accounts may use.
Bytes host_of_ranks(const MachineProfile& machine) {
  const Bytes all = machine.host.bytes, kept = machine.host.reserve;
  if (kept.count >= all.count)
    throw UserError({.operation = "plan.machine",
                     .where = "host.reserve",
                     .what = "the system and the process leave no host memory for the model",
                     .expected = "less than host.bytes, " + format_bytes(all.count),
                     .got = format_bytes(kept.count),
                     .fix = "set host.reserve in the machine's file to what they need there"});
  return {all.count - kept.count};
}

}  // namespace

int gpus_here(DeviceKind kind) { return kind == DeviceKind::kCuda ? cuda_backend().count() : 0; }

MachineProfile this_machine(const Recipe& recipe) {
  return with_device_of(
      recipe, load_profile(default_rates_file(), ProcessorIdentity::of_this_machine(),
                           recipe.device_kind() == DeviceKind::kCuda ? MachineKind::kCuda
                                                                     : MachineKind::kCpu));
}

bool reserves_host(const Recipe& recipe, const MachineProfile& machine) {
  return recipe.memory.host.count == 0 && machine.host.bytes.count > 0;
}

Recipe on_machine(Recipe recipe, const MachineProfile& machine) {
  if (recipe.device == DeviceChoice::kAuto && machine.device.kind == MachineKind::kCuda)
    recipe.device = DeviceChoice::kCuda;
  const auto open = [](Bytes& budget, Bytes has) {
    if (budget.count == 0) budget = has;
  };
  open(recipe.memory.device, machine.device.bytes);
  if (reserves_host(recipe, machine)) recipe.memory.host = host_of_ranks(machine);
  if (!recipe.task->may_use_disk()) return recipe;
  open(recipe.memory.disk.bytes, machine.disk.bytes);
  if (recipe.memory.disk.path.empty() && machine.disk.bytes.count > 0)
    recipe.memory.disk.path = "the machine's disk";  // no file is opened there
  return recipe;
}

// A profile of a machine with a GPU describes the GPU only for ranks on GPUs, and vice versa.
MachineProfile with_device_of(const Recipe& recipe, MachineProfile machine) {
  const MachineKind kind =
      recipe.device_kind() == DeviceKind::kCuda ? MachineKind::kCuda : MachineKind::kCpu;
  if (machine.device.kind == MachineKind::kCuda && kind == MachineKind::kCpu)
    machine.device = {}, machine.link = {}, machine.peers = {};
  machine.device.kind = kind;
  // If the budget leaves room for the driver, it covers only the rank's own tensors, as accounts
  // charge them.
  if (recipe.memory.device.count + machine.device.context.count <= machine.device.bytes.count)
    machine.device.context = {};
  return machine;
}

double flops_of(const MachineProfile& machine, at::ScalarType precision) {
  const double flops = precision == at::kFloat      ? machine.device.fp32
                       : precision == at::kBFloat16 ? machine.device.bf16
                                                    : machine.device.fp16;
  return known(flops, kAssumedFlopsPerSecond);
}

double memory_rate_of(const MachineProfile& machine) {
  return known(static_cast<double>(machine.device.bandwidth.count), kAssumedMemoryRate);
}

RankDevices rank_devices(DeviceKind kind, int ranks, const Rendezvous& rendezvous) {
  const int gpus = gpus_here(kind), processes = rendezvous.processes;
  if (gpus == 0) return {};
  RankDevices devices = devices_here(gpus, ranks, processes);
  const int of_process = (ranks + processes - 1) / processes;
  devices.of_rank =
      devices_in_turns(ranks, of_process * std::max(1, rendezvous.local_processes), gpus);
  return devices;
}

RankDevices rank_devices(DeviceKind kind, int ranks, const World& world) {
  const int gpus = gpus_here(kind);
  if (gpus == 0) return {};
  RankDevices devices = devices_here(gpus, ranks, world.processes());
  devices.of_rank = world.device_ids();
  return devices;
}

}  // namespace strata
