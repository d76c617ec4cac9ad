#include "strata/plan/search/shared_host.h"

#include <algorithm>

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
    layer.update_seconds *= share;
  }
}

std::string shared_host_text(const Plan& plan, const SharedHost& host) {
  return cores_line(host) + memory_line(plan, host);
}

}  // namespace strata
