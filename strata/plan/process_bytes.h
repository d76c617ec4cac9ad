/// Says how much memory one process of a run will occupy: what the kernel counts as resident, and what a memory group
/// has to allow it.
///
/// Ranks are threads of the process, and their device is its memory. What their accounts hold at most, at once, is
/// most of it; the rest was measured: the program with libtorch, and what a thread of a rank takes beside its account,
/// its stack, its part of malloc's arenas and what libraries need while they multiply.
///
/// Units  bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "strata/plan/shared_host.h"

namespace strata {

/// Resident before the first tensor: 115 MiB of code that was used, and 70 MiB of tables that libtorch makes when it is
/// loaded. Measured with libtorch 2.13 for CPUs, on Linux.
inline constexpr std::int64_t kProgramBytes = std::int64_t{186} << 20;

/// Of each thread that computes; what ranks' transfers and updates run on is counted with them.
inline constexpr std::int64_t kThreadBytes = std::int64_t{2} << 20;

struct ProcessBytes {
  int ranks = 0;
  int threads = 0;                ///< that compute, of all ranks
  std::int64_t accounts = 0;      ///< of all ranks, on their device and on the host
  std::int64_t thread_bytes = 0;  ///< of all threads
  std::int64_t program = 0;
  std::int64_t total() const { return accounts + thread_bytes + program; }
};

/// Of the fullest process, where each has `host.ranks` ranks that compute on its processor.
ProcessBytes process_bytes(const Plan& plan, const SharedHost& host);

/// "301.20 MiB resident: 113.20 MiB of 2 ranks, 4.00 MiB of 2 threads, 186.00 MiB of the program and its libraries"
std::string process_text(const ProcessBytes& process);

nlohmann::json to_json(const ProcessBytes& process);

}  // namespace strata
