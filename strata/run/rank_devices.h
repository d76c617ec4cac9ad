/// Assigns a GPU to each rank of a run, and adapts the plan's request if ranks share a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/plan/search/planner.h"
#include "strata/task/recipe.h"
#include "strata/transport/rendezvous.h"

namespace strata {

struct RankDevices {
  /// equal for ranks on the same GPU; empty: no GPUs, or unknown
  std::vector<std::uint64_t> of_rank;
  std::int64_t bytes = 0;  ///< of one GPU
  int here = 0;            ///< GPUs of this process
};

/// Before the processes have met: assumes that machines are like this one, and that all processes
/// of a machine see the same GPUs.
RankDevices rank_devices(const Recipe& recipe, int ranks, const Rendezvous& rendezvous);

/// From the descriptions that the processes have exchanged.
RankDevices rank_devices(const Recipe& recipe, const World& world);

/// The request for a run whose ranks use these devices.
PlanRequest on_devices(PlanRequest request, const Mesh& mesh, const RankDevices& devices,
                       int processes);

}  // namespace strata
