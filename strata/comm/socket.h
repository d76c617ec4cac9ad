/// Owns a TCP connection or listener; sends and receives whole buffers.
///
/// Errors  false or an invalid socket, with errno; the caller knows what it means.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

using Deadline = std::chrono::steady_clock::time_point;

int milliseconds_until(Deadline deadline);  ///< 0 if it has passed

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(int family, int type);
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  bool send(const void* bytes, std::size_t count) const;
  bool receive(void* bytes, std::size_t count) const;
  int port() const;  ///< its own

  bool readable(Deadline deadline) const;  ///< waits for something to read or accept
  Socket accept() const;

 private:
  int descriptor_ = -1;
};

/// Listens on all addresses of this machine, or on `address` alone; port 0: any free one.
Socket listen_on(int port, const std::string& address = "");

/// One try; names and numbers alike.
Socket connect_to(const std::string& host, int port);

/// Some strings as one message. Receiving gives nothing if the other end closes, does not speak
/// like this, or takes longer.
using Texts = std::vector<std::string>;
bool send_texts(const Socket& socket, const Texts& texts);
std::optional<Texts> receive_texts(const Socket& socket, Deadline deadline);

}  // namespace strata
