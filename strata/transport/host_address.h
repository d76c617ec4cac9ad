/// Finds the addresses of a host within a deadline, and knows those that stay on this machine.
///
/// Errors  UserError for a name without address; SystemError when the name service does not answer
///         in time.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

namespace strata {

using Deadline = std::chrono::steady_clock::time_point;

int milliseconds_until(Deadline deadline);  ///< 0 if it has passed

struct HostAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  bool is_loopback() const;
  std::string text() const;  ///< as a number, without the port
};

/// Of a name or a number; at least one.
std::vector<HostAddress> resolve(const std::string& host, int port, Deadline deadline);

bool all_loopback(const std::vector<HostAddress>& addresses);

/// Whether the text itself means this machine, on whatever machine it is read: "localhost" or a
/// loopback number. A host's own name may resolve to loopback there and to a network elsewhere.
bool names_loopback(const std::string& host);

/// A loopback number in its plain form: 127.0.0.1 for "127.1". Empty for whatever else.
std::string loopback_number(const std::string& host);

/// This machine's address as the others see it on the way to one of `addresses`.
std::string own_address(const std::vector<HostAddress>& addresses);

}  // namespace strata
