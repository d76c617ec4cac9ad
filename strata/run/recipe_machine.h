/// Determines what a recipe's machine has and can do: this machine, as measured by `strata doctor`,
/// or a profile; and which GPU each rank uses here.
///
/// Units  bytes, and FLOP/s.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/device/device.h"
#include "strata/plan/machine_profile.h"
#include "strata/task/recipe.h"
#include "strata/transport/rendezvous.h"

namespace strata {

/// What `strata doctor` has measured here for the recipe's device and the rest of the machine;
/// unmeasured values are unknown. As with_device_of() returns it.
MachineProfile this_machine(const Recipe& recipe);

/// The recipe with the machine's memory as its budgets, unless it has its own; for host memory,
/// minus what the system and the process need. Throws UserError if nothing is left.
Recipe on_machine(Recipe recipe, const MachineProfile& machine);

/// Whether the budget of host memory is the machine's.
bool reserves_host(const Recipe& recipe, const MachineProfile& machine);

/// The machine with a device of the recipe's kind: omits what is known of another kind, and the
/// driver's memory if the recipe's budget leaves room for it.
MachineProfile with_device_of(const Recipe& recipe, MachineProfile machine);

/// FLOP/s of products in a precision; assumed if neither measured nor published.
double flops_of(const MachineProfile& machine, at::ScalarType precision);

/// Bytes per second that an optimizer or a layer reads and writes, by the same rule.
double memory_rate_of(const MachineProfile& machine);

/// GPUs that this process sees; 0 for another kind of device.
int gpus_here(DeviceKind kind);

/// The GPUs that ranks use.
struct RankDevices {
  /// equal for ranks on the same GPU; empty: no GPUs, or unknown
  std::vector<std::uint64_t> of_rank;
  std::int64_t bytes = 0;  ///< of one GPU
  bool shared = false;     ///< a process has more ranks than GPUs
};

/// Before the processes have met: assumes that machines are like this one, and that all processes
/// of a machine see the same GPUs.
RankDevices rank_devices(DeviceKind kind, int ranks, const Rendezvous& rendezvous);

/// From the descriptions that the processes have exchanged.
RankDevices rank_devices(DeviceKind kind, int ranks, const World& world);

}  // namespace strata
