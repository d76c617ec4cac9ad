/// Moves messages with UCX, which speaks to InfiniBand and RoCE directly: `mesh.transport: ucx`.
///
/// Large messages are read from the sender's memory by the network (UCX's rendezvous); processes of
/// one machine read each other's memory as with sockets, which is faster than UCX's shared memory.
///
/// A lost process is noticed at once over TCP; UCX leaves its shared memory out by itself, for there
/// it notices late or never.
///
/// UCX_TLS, UCX_NET_DEVICES and the other variables of UCX are obeyed. For trusted networks only:
/// UCX's own connections prove no secret (the processes have done so before, but a stranger who
/// reaches UCX's port can write to memory). Tried over UCX's tcp and shared-memory transports; no
/// RDMA network was at hand.
///
/// Errors  UserError when Strata was built without UCX; SystemError when a process cannot be reached.
#pragma once

#include <memory>

#include "strata/transport/join.h"
#include "strata/transport/transport.h"

namespace strata {

bool ucx_is_available();

/// All processes call it together.
std::unique_ptr<Transport> connect_ucx(Bootstrap& bootstrap);

}  // namespace strata
