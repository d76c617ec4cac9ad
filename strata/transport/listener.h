/// Accepts connections between the processes of one run and rejects all others.
///
/// The handshake on every new connection: the listener sends a nonce; the connecting process
/// answers with its number, a nonce of its own and a keyed hash over both; the listener proves its
/// knowledge of the key with another hash. Until then at most 76 bytes of a peer are read. All
/// unauthenticated peers are served concurrently, so that none can delay the others.
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
  /// Returns the next process that has proven to know the key; none at the deadline or after
  /// stop().
  std::optional<Arrival> accept(Deadline deadline);

  /// Ends accept() within 50 ms.
  void stop() { stopped_ = true; }

  /// How many peers had a different secret.
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
  bool advance(UnauthenticatedPeer& peer);  // false: the peer is finished
  void answer(UnauthenticatedPeer& peer);

  Socket socket_;
  HandshakeKey key_;
  std::deque<UnauthenticatedPeer> peers_;  // oldest first
  std::deque<Arrival> arrivals_;
  int refused_ = 0;
  std::atomic<bool> stopped_ = false;
};

enum class HandshakeResult { kAccepted, kOtherSecret, kBroken };

/// The connecting side of the handshake.
HandshakeResult shake_hands(const Socket& socket, int process, const HandshakeKey& key,
                            Deadline deadline);

}  // namespace strata
