#include "strata/plan/search/shared_host.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "strata/base/units.h"

namespace strata {
namespace {

std::string ranks_text(const SharedHost& host) {
  return std::to_string(host.ranks) + (host.ranks == 1 ? " rank" : " ranks");
}

std::string cores_line(const SharedHost& host) {
  const double share = threads_per_core(host);
  if (share <= 1) return "";
  return "cores      " + ranks_text(host) + " of " + std::to_string(host.threads_per_rank) +
         (host.threads_per_rank == 1 ? " thread" : " threads") + " share " +
         std::to_string(host.cores) + (host.cores == 1 ? " core" : " cores") +
         ": compute is assumed to take " + format_double(share, 1) + " times as long\n";
}

// A budget is the user's choice; without one, nothing has compared the plan with the machine's
// memory.
std::string memory_line(const Plan& plan, const SharedHost& host) {
  if (plan.memory.device.count > 0 || plan.ledger.empty()) return "";
  std::int64_t bytes = 0;
  for (const RankLedger& rank : plan.ledger) bytes += rank.peak_bytes + rank.host.total();
  bytes = bytes / static_cast<std::int64_t>(plan.ledger.size()) * host.ranks;
  if (bytes <= host.bytes) return "";
  return "machine    " + format_bytes(bytes) + " of " + ranks_text(host) +
         ", but this machine has " + format_bytes(host.bytes) +
         ": it will not run here; with memory.device it is planned to fit or refused\n";
}

}  // namespace

double threads_per_core(const SharedHost& host) {
  return std::max(1.0, static_cast<double>(host.ranks) * host.threads_per_rank / host.cores);
}

int ranks_side_by_side(const SharedHost& host) {
  return std::clamp(host.cores / host.threads_per_rank, 1, host.ranks);
}

void share_cores(CostTable& costs, const SharedHost& host) {
  const double share = threads_per_core(host);
  for (LayerCost& layer : costs.layers) {
    layer.forward_seconds *= share;
    layer.backward_seconds *= share;
    layer.weight_seconds *= share;
    layer.update_seconds *= share;
  }
}

std::string shared_host_text(const Plan& plan, const SharedHost& host) {
  return cores_line(host) + memory_line(plan, host);
}

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
