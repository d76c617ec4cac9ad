#include "strata/plan/search/process_bytes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "strata/base/units.h"

namespace strata {

// A rank of the pipeline was planned once for all of its replicas and tensor-parallel ranks.
ProcessBytes process_bytes(const Plan& plan, const SharedHost& host) {
  const Mesh& mesh = plan.decisions().mesh;
  ProcessBytes process{.ranks = host.ranks,
                       .threads = host.ranks * host.threads_per_rank,
                       .thread_bytes = host.ranks * host.threads_per_rank * kThreadBytes,
                       .program = kProgramBytes};
  for (int first = 0; first < mesh.size(); first += host.ranks) {
    std::int64_t bytes = 0;
    for (int rank = first; rank < std::min(first + host.ranks, mesh.size()); ++rank) {
      const RankLedger& ledger = plan.ledger[mesh.place(rank)[Axis::kPipeline]];
      bytes += ledger.peak_bytes + ledger.host.total();
    }
    process.accounts = std::max(process.accounts, bytes);
  }
  return process;
}

std::string process_text(const ProcessBytes& process) {
  const auto counted = [](int count, const char* noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
  };
  return format_bytes(process.total()) + " resident: " + format_bytes(process.accounts) + " of " +
         counted(process.ranks, "rank") + ", " + format_bytes(process.thread_bytes) + " of " +
         counted(process.threads, "thread") + ", " + format_bytes(process.program) +
         " of the program and its libraries";
}

nlohmann::json to_json(const ProcessBytes& process) {
  return {{"bytes", process.total()},
          {"ranks", process.ranks},
          {"threads", process.threads},
          {"account_bytes", process.accounts},
          {"thread_bytes", process.thread_bytes},
          {"program_bytes", process.program}};
}

}  // namespace strata
