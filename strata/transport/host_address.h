/// Resolves the addresses of a host within a deadline, and recognises loopback addresses.
///
/// Errors  UserError for a name without address; SystemError if the name service does not answer in
///         time.
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

/// Addresses of a name or a number; at least one.
std::vector<HostAddress> resolve(const std::string& host, int port, Deadline deadline);

bool all_loopback(const std::vector<HostAddress>& addresses);

/// Whether the text means the local machine on every machine: "localhost" or a loopback number. A
/// host's own name may resolve to loopback there and to a network elsewhere.
bool names_loopback(const std::string& host);

/// A loopback number in its canonical form: 127.0.0.1 for "127.1". Empty for all other text.
std::string loopback_number(const std::string& host);

/// This machine's address as seen by one of `addresses`.
std::string own_address(const std::vector<HostAddress>& addresses);

}  // namespace strata
