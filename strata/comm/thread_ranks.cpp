#include "strata/comm/thread_ranks.h"

namespace strata {

void run_thread_ranks(const ThreadRanksOptions& options, const RankFunction& function) {
  run_ranks({.ranks = options.ranks,
             .threads_per_rank = options.threads_per_rank,
             .device_bytes = options.device_bytes,
             .stall_seconds = 0,
             .rendezvous = Rendezvous{}},
            function);
}

}  // namespace strata
