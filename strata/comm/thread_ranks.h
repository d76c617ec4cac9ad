/// Runs ranks as threads of this process, whatever the environment says.
///
/// Errors  the first rank's; UserError for less than one rank.
#pragma once

#include "strata/comm/ranks.h"

namespace strata {

struct ThreadRanksOptions {
  int ranks = 1;
  int threads_per_rank = 1;       ///< intra-op threads of each
  std::int64_t device_bytes = 0;  ///< budget of each rank's account; 0: none
};

void run_thread_ranks(const ThreadRanksOptions& options, const RankFunction& function);

}  // namespace strata
