/// Connects simulated processes within one real process, and delays, reorders, drops and breaks
/// messages on request, so that tests of messages, shutdown and loss take milliseconds.
///
/// It keeps the guarantees of a transport (a process's last message to a peer arrives after all
/// others) unless a fault says otherwise.
///
/// Threads  all methods from any thread; each transport has one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "strata/transport/transport.h"

namespace strata {

struct Faults {
  enum class Fate : std::uint8_t {
    kDeliver,
    kDrop,        ///< without notifying either process
    kBreakLink,   ///< sender and receiver lose each other, as by a closed connection
    kKillSender,  ///< all others lose the sender, and its memory can no longer be read
    kKillReceiver
  };
  std::uint64_t seed = 0;                   ///< seeds all random choices
  std::chrono::microseconds most_delay{0};  ///< a message takes a random time up to this
  bool reorder = false;                     ///< messages of a link overtake each other
  bool reads_in_place = true;
  struct Sent {
    int from, to;
    std::uint64_t number;  ///< over all links, from 0
    const MessageHeader& header;
  };
  std::function<Fate(const Sent& message)> fate;  ///< empty: all are delivered
};

class FaultyNetwork {
 public:
  explicit FaultyNetwork(int processes, Faults faults = {});
  ~FaultyNetwork();

  /// Call once per process. The transport must be destroyed before the network.
  std::unique_ptr<Transport> transport(int process);

  void kill(int process);
  void break_link(int a, int b);
  std::uint64_t messages() const;  ///< messages sent

 private:
  friend class FaultyTransport;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata
