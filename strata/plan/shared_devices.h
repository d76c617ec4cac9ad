/// Says which ranks share devices, and what that means for a plan: a device does the work of all of its ranks, one
/// thing after another, in the order in which it was given, and has their bytes together.
///
/// One pipeline stands for all in a simulation: the one whose devices have most to do. A rank of another pipeline on
/// one of them makes its work take longer, by as much as if all stages were alike.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/plan/ledger.h"
#include "strata/plan/simulator.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/mesh.h"

namespace strata {

/// `device_of_rank`: what tells each rank's device from others; empty: nobody knows, and none is shared. Empty, too,
/// where nobody shares one. `device_bytes`: of each; 0: nobody knows.
SharedDevices shared_devices(const Mesh& mesh, const std::vector<std::uint64_t>& device_of_rank,
                             std::int64_t device_bytes = 0);

/// Ranks go round the devices of their machine (device/device.h): as many ranks a machine, each with as many devices.
std::vector<std::uint64_t> devices_in_turns(int ranks, int ranks_a_machine, int devices);

int most_ranks_on_one(const SharedDevices& devices);

/// What the ranks on the fullest device need together, each at its own peak; 0: each has one for itself.
std::int64_t shared_peak_bytes(const SharedDevices& devices, const Ledger& ledger);

/// Of the time of a step, in which the devices of a pipeline have nothing to do; its ranks wait for one another, too.
double idle_share(const SharedDevices& devices, const Simulation& step);

/// Whether every device has room for all of its ranks.
bool have_room(const SharedDevices& devices, const Ledger& ledger);

}  // namespace strata
