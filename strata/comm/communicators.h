/// Decides how the ranks of a group exchange device tensors, and makes and ends the communicators of those that
/// need one.
///
/// A communicator is made when a collective first needs it, one for each set of ranks, however many groups
/// they form. All its ranks come together on the host first: one that is missing is named by the watchdog,
/// as in any other wait. Sets that overlap are made in the order in which programs use them, which is the same
/// for their ranks because their streams need it to be; they are ended in ascending order.
///
/// Threads  the rank's.
/// Errors   as of Communicator; UserError: processes with different libraries, or one whose calls would wait.
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
  kPeers,         ///< one process: ranks read one another's tensors where they are
  kCommunicator,  ///< a device each, in several processes
  kThroughHost,   ///< whatever is left: copies in host memory, and its sums
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

  /// `ranks`: of the world, ascending, this one among them. Collective, once for each set.
  ExchangeWay way(const std::vector<int>& ranks);
  /// Of way() kCommunicator. Collective, once for each set.
  Communicator& of(const std::vector<int>& ranks);

  /// Ends all behind what was given to them. Collective: on every rank, when its work has been given.
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
