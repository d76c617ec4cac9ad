/// Runs ranks as threads of this process, which hand tensors to each other without copying.
///
/// Each rank's thread starts with autograd's own threading off, its number of intra-op threads set
/// and its memory account installed. A rank that throws cancels every wait of the others; all stop
/// and the first error is rethrown, with the rank in front of its place.
///
/// Errors  the first rank's; UserError for less than one rank.
#pragma once

#include <functional>
#include <string>

#include "strata/comm/group.h"
#include "strata/device/account.h"

namespace strata {

struct ThreadRanksOptions {
  int ranks = 1;
  int threads_per_rank = 1;       ///< intra-op threads of each
  std::int64_t device_bytes = 0;  ///< budget of each rank's account; 0: none
};

using RankFunction = std::function<void(Group& group, MemoryAccount& account)>;

void run_thread_ranks(const ThreadRanksOptions& options, const RankFunction& function);

}  // namespace strata
