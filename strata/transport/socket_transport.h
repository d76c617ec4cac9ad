/// Moves messages over TCP, one connection between each two processes; processes of one machine
/// read each other's memory instead where they may.
///
/// A thread per peer sends from a queue, so that send() never waits; another always has a receive
/// outstanding, so that a lost process is noticed at once. No byte is copied on the way to the
/// kernel. A machine that vanishes without closing its connections is noticed after about 30 s.
///
/// Errors  SystemError when a process cannot be reached before the join's deadline.
#pragma once

#include <memory>

#include "strata/transport/join.h"
#include "strata/transport/transport.h"

namespace strata {

/// All processes call it together.
std::unique_ptr<Transport> connect_sockets(Bootstrap& bootstrap);

}  // namespace strata
