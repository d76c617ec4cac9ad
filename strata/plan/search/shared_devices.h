/// Determines which ranks share devices and how that changes a plan. A device runs the work of all
/// of its ranks one at a time, in the order of their launches, and holds the bytes of all of them.
///
/// One pipeline represents all others in a simulation: the one whose devices have the most work.
/// Ranks of other pipelines on one of its devices slow it down as if all stages were equal.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/layout/mesh.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/plan/simulate/simulator.h"

namespace strata {

/// `device_of_rank`: an id of each rank's device; empty: unknown, so none is shared. Returns an
/// empty result if no device is shared. `device_bytes`: memory of each; 0: unknown.
SharedDevices shared_devices(const Mesh& mesh, const std::vector<std::uint64_t>& device_of_rank,
                             std::int64_t device_bytes = 0);

/// Ranks take the devices of their machine round robin (device/device.h); every machine has the
/// same numbers of ranks and devices.
std::vector<std::uint64_t> devices_in_turns(int ranks, int ranks_a_machine, int devices);

int most_ranks_on_one(const SharedDevices& devices);

/// The sum of the peaks of the ranks on the fullest device; 0: no device is shared.
std::int64_t shared_peak_bytes(const SharedDevices& devices, const Ledger& ledger);

/// The share of a step in which the devices of a pipeline are idle. Ranks on a shared device wait
/// for each other, too.
double idle_share(const SharedDevices& devices, const Simulation& step);

/// Whether every device has memory for all of its ranks.
bool have_room(const SharedDevices& devices, const Ledger& ledger);

}  // namespace strata
