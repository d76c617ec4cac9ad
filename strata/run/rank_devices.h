/// Says which GPU each rank of a run computes on, and what follows for its plan where ranks share one.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/plan/search/planner.h"
#include "strata/task/recipe.h"
#include "strata/transport/rendezvous.h"

namespace strata {

struct RankDevices {
  std::vector<std::uint64_t> of_rank;  ///< what tells them apart; empty: no GPUs, or nobody knows
  std::int64_t bytes = 0;              ///< of one
  int here = 0;                        ///< that this process has
};

/// Before the processes have met: machines are like this one, and all processes of a machine have the same GPUs.
RankDevices rank_devices(const Recipe& recipe, int ranks, const Rendezvous& rendezvous);

/// What they have told each other.
RankDevices rank_devices(const Recipe& recipe, const World& world);

/// The request of a run whose ranks are on these.
PlanRequest on_devices(PlanRequest request, const Mesh& mesh, const RankDevices& devices,
                       int processes);

}  // namespace strata
