/// Computes what the ranks of one process need of the host together: cores, resident memory, and
/// what a memory group has to allow.
///
/// Ranks are threads of the process; on a CPU their device is its memory. Most of the memory is the
/// simultaneous maximum of their accounts. The rest was measured: the program with libtorch, and
/// what the thread of a rank takes in addition to its account: its stack, its part of malloc's
/// arenas, and buffers of libraries during products.
///
/// Units  bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "strata/plan/search/planner.h"

namespace strata {

struct SharedHost {
  int ranks = 1;
  int threads_per_rank = 1;
  int cores = 1;
  std::int64_t bytes = 0;  ///< memory of the machine
};

/// How many threads share a core; 1 if there are enough cores.
double threads_per_core(const SharedHost& host);

/// How many ranks can compute at once on cores of their own, at least one.
int ranks_side_by_side(const SharedHost& host);

/// Scales compute that was measured on dedicated cores to shared cores.
void share_cores(CostTable& costs, const SharedHost& host);

/// One line for cores and one for memory, if all ranks together need more than the machine has.
std::string shared_host_text(const Plan& plan, const SharedHost& host);

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
