/// Determines which processes of this machine may read each other's memory, and reads it.
///
/// Two processes are same-host peers if each has read a nonce that only the other knew. If
/// containers or the kernel's settings forbid it, no error is reported and all data goes through
/// the transport. With STRATA_SOCKETS=1 in its environment a process has no such peers.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "strata/transport/join.h"

namespace strata {

/// STRATA_SOCKETS is set, and neither empty nor 0: this process reads no memory of others.
bool sockets_only();

/// Per process: its id if it is a same-host peer, else 0. Collective: all processes call it.
std::vector<pid_t> find_same_host_peers(Bootstrap& bootstrap);

/// Returns false if the process has ended or the memory is not mapped.
bool read_memory(pid_t process, std::uint64_t address, std::size_t count, void* to);

/// Reads with calls that may each read fewer bytes than requested, like process_vm_readv(): returns
/// the number of bytes read, or -1 with errno.
using ReadOnce = std::function<ssize_t(std::uint64_t address, std::size_t count, void* to)>;
bool read_completely(const ReadOnce& read_once, std::uint64_t address, std::size_t count, void* to);

}  // namespace strata
