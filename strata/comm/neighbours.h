/// Finds out which processes of this machine may read each other's memory, and reads it.
///
/// Two processes are neighbours if each has read a word that only the other knew. Containers and
/// the kernel's settings may forbid it: then nothing is said, and everything goes through the
/// pipes. With STRATA_SOCKETS=1 in its environment a process has no neighbours.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "strata/comm/pipes.h"

namespace strata {

/// Of each process: its id if it is a neighbour, else 0. All processes call it at the same time,
/// before anything else goes through the pipes.
std::vector<pid_t> meet_neighbours(Pipes& pipes);

/// False if the process is gone or the memory is not there.
bool read_memory(pid_t process, std::uint64_t address, std::size_t count, void* to);

}  // namespace strata
