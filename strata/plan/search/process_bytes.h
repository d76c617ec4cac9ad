/// Computes how much memory one process of a run occupies: what the kernel counts as resident, and
/// what a memory group has to allow.
///
/// Ranks are threads of the process, and their device is its memory. Most of it is the simultaneous
/// maximum of their accounts. The rest was measured: the program with libtorch, and what the thread
/// of a rank takes in addition to its account: its stack, its part of malloc's arenas, and buffers
/// of libraries during products.
///
/// Units  bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "strata/plan/search/shared_host.h"

namespace strata {

/// Resident before the first tensor: 115 MiB of code in use, and 70 MiB of tables that libtorch
/// builds when it is loaded. Measured with libtorch 2.13 for CPUs, on Linux.
inline constexpr std::int64_t kProgramBytes = std::int64_t{186} << 20;

/// Per computing thread. It includes the executors of the ranks' transfers and updates.
inline constexpr std::int64_t kThreadBytes = std::int64_t{2} << 20;

struct ProcessBytes {
  int ranks = 0;
  int threads = 0;                ///< computing threads of all ranks
  std::int64_t accounts = 0;      ///< accounts of all ranks, on their device and on the host
  std::int64_t thread_bytes = 0;  ///< bytes of all threads
  std::int64_t program = 0;
  std::int64_t total() const { return accounts + thread_bytes + program; }
};

/// The bytes of the fullest process, if each has `host.ranks` ranks on its processor.
ProcessBytes process_bytes(const Plan& plan, const SharedHost& host);

/// "301.20 MiB resident: 113.20 MiB of 2 ranks, 4.00 MiB of 2 threads, 186.00 MiB of the program
/// and its libraries"
std::string process_text(const ProcessBytes& process);

nlohmann::json to_json(const ProcessBytes& process);

}  // namespace strata
