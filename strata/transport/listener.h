/// Lets the processes of one run connect to each other, and nobody else.
///
/// The handshake, on every new connection: the listener sends a nonce; the process that connects
/// answers with its number, a nonce of its own and a keyed hash over both; the listener shows that
/// it knows the key, too, with another hash. Until then at most 76 bytes of a peer are read, and
/// all unauthenticated peers are served side by side, so that none of them can delay the others.
///
/// Threads  one at a time; stop() from any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "strata/transport/secret.h"
#include "strata/transport/socket.h"

namespace strata {

class Listener {
 public:
  Listener(Socket socket, HandshakeKey key);

  int port() const { return socket_.port(); }

  struct Arrival {
    int process = 0;
    Socket socket;
  };
  /// The next process that has proven to know the key; none at the deadline or after stop().
  std::optional<Arrival> accept(Deadline deadline);

  /// Ends accept() within 50 ms.
  void stop() { stopped_ = true; }

  /// How many peers had another secret.
  int refused() const { return refused_; }

 private:
  static constexpr std::size_t kHelloBytes = 76;
  struct UnauthenticatedPeer {
    Socket socket;
    Nonce nonce{};
    Deadline until;
    std::array<char, kHelloBytes> hello{};
    std::size_t received = 0;
  };

  void await(Deadline deadline) const;
  void accept_new();
  bool advance(UnauthenticatedPeer& peer);  // false: it is done with
  void answer(UnauthenticatedPeer& peer);

  Socket socket_;
  HandshakeKey key_;
  std::deque<UnauthenticatedPeer> peers_;  // oldest first
  std::deque<Arrival> arrivals_;
  int refused_ = 0;
  std::atomic<bool> stopped_ = false;
};

enum class HandshakeResult { kAccepted, kOtherSecret, kBroken };

/// The part of the process that connects.
HandshakeResult shake_hands(const Socket& socket, int process, const HandshakeKey& key,
                            Deadline deadline);

}  // namespace strata
