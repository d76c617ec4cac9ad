/// Finds out which processes of this machine may read each other's memory, and reads it.
///
/// Two processes are same-host peers if each has read a nonce that only the other knew. Containers
/// and the kernel's settings may forbid it: then nothing is said, and everything goes through the
/// transport. With STRATA_SOCKETS=1 in its environment a process has no such peers.
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

/// Of each process: its id if it is a same-host peer, else 0. All processes call it together.
std::vector<pid_t> find_same_host_peers(Bootstrap& bootstrap);

/// False if the process is gone or the memory is not there.
bool read_memory(pid_t process, std::uint64_t address, std::size_t count, void* to);

/// Reads with calls that may each read less than asked for, as process_vm_readv() does: the number
/// of bytes read, or -1 with errno.
using ReadOnce = std::function<ssize_t(std::uint64_t address, std::size_t count, void* to)>;
bool read_completely(const ReadOnce& read_once, std::uint64_t address, std::size_t count, void* to);

}  // namespace strata
