/// Owns a TCP connection or listener; sends and receives whole buffers, with or without a deadline.
///
/// Errors  returns false or an invalid socket, with errno.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/transport/host_address.h"

namespace strata {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  int port() const;  ///< the local port

  bool send(const void* bytes, std::size_t count) const;
  bool receive(void* bytes, std::size_t count) const;
  bool send(const void* bytes, std::size_t count, Deadline deadline) const;
  bool receive(void* bytes, std::size_t count, Deadline deadline) const;

  /// Receives what has arrived, without waiting: the number of bytes, 0 if there are none yet, -1
  /// if the other end has closed.
  int receive_some(void* bytes, std::size_t count) const;

  /// Sends small messages at once; detects a machine that vanishes after about 30 s.
  void set_up_for_messages() const;

  /// Ends every send and receive of this connection, now and later, in any thread.
  void shut_down() const;

 private:
  int descriptor_ = -1;
};

/// Listens at one address of this machine, or at all; port 0: any free one.
Socket listen_at(const HostAddress& address);
Socket listen_everywhere(int port);

/// Tries each address once.
Socket connect_to(const std::vector<HostAddress>& addresses, Deadline deadline);

/// A port of this machine that is free now.
int free_loopback_port();

/// Several strings as one message. Receiving returns nothing if the other end closes, is too slow,
/// or announces more than `most_bytes`; memory grows with the received bytes, not with the
/// announced ones.
using Texts = std::vector<std::string>;
bool send_texts(const Socket& socket, const Texts& texts, Deadline deadline);
std::optional<Texts> receive_texts(const Socket& socket, std::size_t most_bytes, Deadline deadline);

}  // namespace strata
