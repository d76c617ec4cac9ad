/// Runs the ranks of a mesh: as threads of this process, or of several processes that meet first.
///
/// The environment decides (transport/rendezvous.h): without its variables all ranks are threads
/// here; with them, process p of n hosts ranks [p * ranks / n, (p + 1) * ranks / n). Ranks of one
/// process hand tensors over without copying. Each rank's thread starts with autograd's own
/// threading off, its number of intra-op threads set and its memory account installed.
///
/// A rank that throws ends every wait of all others, here and elsewhere; a process that is lost
/// does, too. All stop, and every process throws the same error, with the rank in front of its
/// place.
///
/// Errors  of the ranks; UserError: ranks and processes that do not match, processes that differ;
///         SystemError: a process that is missing or lost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/comm/group.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/layout/mesh.h"
#include "strata/transport/rendezvous.h"
#include "strata/transport/slow_link.h"
#include "strata/transport/transport.h"
#include "strata/transport/transport_choice.h"

namespace strata {

struct RanksOptions {
  int ranks = 1;
  int threads_per_rank = 1;       ///< intra-op threads of each
  std::int64_t device_bytes = 0;  ///< budget of each rank's account; 0: none
  Device device;                  ///< its kind, of every rank; which one: device_of_rank()
  Mesh mesh;                      ///< names ranks in errors, if it has as many
  std::string fingerprint;        ///< must be equal in all processes, e.g. the recipe's text
  std::string version;            ///< empty: of this program
  /// Called from another thread with a sentence about a stalled rank; empty: no watchdog.
  std::function<void(const std::string&)> warn = {};
  double join_seconds = 0;          ///< 0: STRATA_JOIN_SECONDS, or 25
  double stall_seconds = 10;        ///< a rank without progress is named after these; 0: never
  double stall_fatal_seconds = 60;  ///< and ends the run after these; 0: never
  TransportKind transport = TransportKind::kAuto;
  LinkLimit link;  ///< emulated between processes; one process has no link
  /// order of sums on devices; a CPU's is always ordered
  Reduction reduction = Reduction::kOrdered;
  /// What each rank of this process computes on; empty: what the build has for `device`.
  std::function<std::shared_ptr<RankDevice>(int rank)> rank_device;
  /// Limits the device memory of a rank with a device of its own, until the World ends (then 0);
  /// default: limit_device_memory().
  std::function<void(Device device, std::int64_t bytes)> limit_memory;
  std::optional<Rendezvous> rendezvous;  ///< default: from the environment
  /// How the processes are connected; empty: they join at the rendezvous (transport/join.h).
  std::function<std::unique_ptr<Transport>(const Rendezvous& rendezvous)> connect;
};

using RankFunction = std::function<void(Group& group, MemoryAccount& account)>;

/// What the processes of a run share from the time they meet.
class World {
 public:
  /// Waits for the other processes.
  explicit World(RanksOptions options);
  /// If run() was not called, the other processes end with an error.
  ~World();

  int process() const;
  int processes() const;
  int first_rank() const;  ///< ranks of this process
  int local_ranks() const;

  /// What connects the processes, and why; without other processes it has no reason.
  const TransportChoice& transport() const;

  /// For each rank an id of its device that is unique over all processes; empty: unknown.
  const std::vector<std::uint64_t>& device_ids() const;

  /// The text that process 0 decides on, in every process; what it throws is thrown in all.
  std::string agree(const std::function<std::string()>& decide);

  /// Once. Returns when the ranks of all processes have ended.
  void run(const RankFunction& function);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

void run_ranks(RanksOptions options, const RankFunction& function);

struct ThreadRanksOptions {
  int ranks = 1;
  int threads_per_rank = 1;       ///< intra-op threads of each
  std::int64_t device_bytes = 0;  ///< budget of each rank's account; 0: none
  Device device;                  ///< its kind, of every rank
};

/// Runs ranks as threads of this process, ignoring the environment.
void run_thread_ranks(const ThreadRanksOptions& options, const RankFunction& function);

}  // namespace strata
