/// Delivers messages to the ranks of this process, from each other or from other processes.
///
/// A message stays in its receiver's mailbox until it is taken, so the order of sends does not
/// matter and no send waits. Ranks of one process pass tensors without copying.
///
/// Threads  all methods from any thread.
/// Errors   take() throws Cancelled after fail().
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/monitor.h"
#include "strata/comm/message.h"
#include "strata/device/device.h"
#include "strata/transport/watchdog.h"

namespace strata {

/// Thrown out of the waits of surviving ranks; never reported.
struct Cancelled {};

/// The origin of an error, as far as its own process knows.
enum class FailureOf : std::uint8_t { kRank, kPeer };

/// Sends messages to ranks of other processes (comm/peer_protocol.h).
class RemoteRanks {
 public:
  virtual ~RemoteRanks() = default;
  virtual void send(const Address& address, Message message) = 0;  ///< never waits
  virtual bool reads_in_place(int rank) const = 0;  ///< the tensors of this process's ranks
  /// Ends all ranks, here and elsewhere.
  virtual void fail(const Error& error, FailureOf of) = 0;
};

class Mailboxes {
 public:
  /// Ranks [first_rank, first_rank + local_ranks) of `world_size` live in this process.
  Mailboxes(int world_size, int first_rank, int local_ranks);

  int world_size() const { return world_size_; }
  int first_rank() const { return first_rank_; }
  int local_ranks() const { return static_cast<int>(mailboxes_.size()); }
  bool is_local(int rank) const {
    return rank >= first_rank_ && rank < first_rank_ + local_ranks();
  }
  /// Sends to the ranks of other processes; must outlive the last post.
  void set_remote(RemoteRanks* remote) { remote_ = remote; }

  /// Where the tensors of this process's ranks live, before the ranks start; by default on the CPU.
  void set_devices(std::vector<Device> devices) { devices_ = std::move(devices); }
  Device device_of(int rank) const { return devices_[rank - first_rank_]; }

  ProgressTable& progress() { return progress_; }

  void post(const Address& address, Message message);
  Message take(const Address& address);
  bool holds(const Address& address) const;  ///< take() would not wait
  bool reads_in_place(int rank) const;       ///< of a message of any size
  void clear();                              ///< drops messages that no rank has taken

  /// Ends every wait, now and later. Of several errors the one with the lowest precedence is kept,
  /// the first of equal ones, so all processes report the same. Returns false if this error was not
  /// kept.
  bool fail(std::exception_ptr error, int precedence = 0);
  /// The same, in the other processes, too.
  void fail_everywhere(const Error& error, FailureOf of = FailureOf::kRank);
  bool failed() const { return failed_; }
  void rethrow_failure() const;

 private:
  struct Mailbox {
    std::map<Address, Message> messages;
    bool failed = false;
  };
  Monitor<Mailbox>& mailbox_of(int rank) const { return *mailboxes_[rank - first_rank_]; }

  int world_size_;
  int first_rank_;
  std::vector<std::unique_ptr<Monitor<Mailbox>>> mailboxes_;
  std::vector<Device> devices_;
  ProgressTable progress_;
  RemoteRanks* remote_ = nullptr;
  std::atomic<bool> failed_ = false;
  mutable std::mutex error_mutex_;
  std::exception_ptr error_;
  int precedence_ = 0;
};

}  // namespace strata
