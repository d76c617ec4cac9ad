/// Reports what ranks that share a processor need together, if the machine has less.
#pragma once

#include <cstdint>
#include <string>

#include "strata/plan/search/planner.h"

namespace strata {

struct SharedHost {
  int ranks = 1;
  int threads_per_rank = 1;
  int cores = 1;
  std::int64_t bytes = 0;  ///< memory of the machine
};

/// How many threads share a core; 1 if there are enough cores.
double threads_per_core(const SharedHost& host);

/// How many ranks can compute at once on cores of their own, at least one.
int ranks_side_by_side(const SharedHost& host);

/// Scales compute that was measured on dedicated cores to shared cores.
void share_cores(CostTable& costs, const SharedHost& host);

/// One line for cores and one for memory, if all ranks together need more than the machine has.
std::string shared_host_text(const Plan& plan, const SharedHost& host);

}  // namespace strata
