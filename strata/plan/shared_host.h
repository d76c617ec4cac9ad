/// Says what ranks that compute on one processor ask of it together, where that is more than the machine has.
#pragma once

#include <cstdint>
#include <string>

#include "strata/plan/planner.h"

namespace strata {

struct SharedHost {
  int ranks = 1;
  int threads_per_rank = 1;
  int cores = 1;
  std::int64_t bytes = 0;  ///< of its memory
};

/// How many threads wait for a core, counting the one that has it; 1 where there are cores enough.
double threads_per_core(const SharedHost& host);

/// How many ranks compute at once on cores of their own, at least one.
int ranks_side_by_side(const SharedHost& host);

/// Compute that has taken these seconds on cores of its own, where it has to share them.
void share_cores(CostTable& costs, const SharedHost& host);

/// A line each for cores and for memory that all ranks share; nothing where both suffice.
std::string shared_host_text(const Plan& plan, const SharedHost& host);

}  // namespace strata
