/// Chooses what connects the processes of a run: UCX where all their machines have an RDMA network,
/// sockets elsewhere.
///
/// Errors  UserError: `mesh.transport: ucx` on a machine without UCX.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/transport/transport.h"

namespace strata {

/// What a machine offers to UCX.
struct UcxSupport {
  std::string rdma_device;  ///< with an active port; empty: none
  /// Called only if UCX would be used, because it loads the library.
  std::function<std::optional<MissingUcx>()> missing = missing_ucx;
};
UcxSupport ucx_support_of_this_machine();

/// The first device of a folder like Linux' /sys/class/infiniband that has an active port; empty:
/// none.
std::string active_rdma_device(const std::string& folder);

struct TransportChoice {
  TransportKind kind = TransportKind::kSockets;  ///< never kAuto
  std::string reason;
};

/// What a process on such a machine uses, if its peers are on other machines.
TransportChoice choose_transport(TransportKind requested, const UcxSupport& here);

/// UCX if every process chooses it; otherwise sockets, for the reason of the first that does not.
TransportChoice common_choice(const std::vector<TransportChoice>& by_process);

/// The common choice of all processes; automatically sockets between processes of one machine.
/// Collective: all processes call it, and all get the same choice or the same error.
TransportChoice agree_on_transport(Bootstrap& bootstrap, TransportKind requested,
                                   const UcxSupport& here);

}  // namespace strata
