/// Decides how the ranks of a group exchange device tensors, and creates and ends the
/// communicators.
///
/// A communicator is created when a collective first needs it, one per set of ranks, for any number
/// of groups. Its ranks meet on the host first, so the watchdog names a missing rank as in any
/// other wait. Overlapping sets are created in the order in which programs use them, which is equal
/// on all ranks because their streams require that; they are ended in ascending order.
///
/// Threads  the rank's.
/// Errors   those of Communicator; UserError: processes with different libraries, or one whose
///          calls would wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/comm/communicator.h"
#include "strata/device/device.h"

namespace strata {

class Mailboxes;

/// Where a rank computes.
struct RankPlace {
  int process = 0;
  int library_version = 0;  ///< 0: none is present
  std::uint64_t device = 0;
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

enum class ExchangeWay : std::uint8_t {
  kPeers,         ///< one process: ranks read each other's tensors in place
  kCommunicator,  ///< a device each, in several processes
  kThroughHost,   ///< all other cases: copies and sums in host memory
};

/// The same on all ranks. UserError: libraries of several versions.
ExchangeWay exchange_way(std::span<const RankPlace> places);

class Communicators {
 public:
  Communicators(std::shared_ptr<Mailboxes> mailboxes, int world_rank,
                const CollectiveLibrary& library, Device device);
  ~Communicators();  ///< aborts what finish() has not ended
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// `ranks`: world ranks, ascending, this one included. Collective, once for each set.
  ExchangeWay way(const std::vector<int>& ranks);
  /// For sets whose way() is kCommunicator. Collective, once for each set.
  Communicator& of(const std::vector<int>& ranks);

  /// Ends all after their enqueued work. Collective: on every rank, when its work has been
  /// enqueued.
  void finish();

 private:
  std::string meet(const std::vector<int>& ranks, int kind, const std::string& own,
                   const std::function<std::string(const std::string& all)>& answer);

  const std::shared_ptr<Mailboxes> mailboxes_;
  const int world_rank_;
  const CollectiveLibrary& library_;
  const Device device_;
  std::map<std::vector<int>, ExchangeWay> ways_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> made_;
};

}  // namespace strata
