/// Reads the address of a server of rows, HOST:PORT or unix:PATH, and decides whether rows that go there
/// stay on this machine.
///
/// Threads  any.
/// Errors   UserError: no address, a port or path that cannot be.
#pragma once

#include <cstddef>
#include <string>

namespace strata {

inline constexpr std::size_t kLongestSocketPath =
    98;  ///< bytes; the system's 107, less a server's suffix

struct ServerAddress {
  std::string host;  ///< without the brackets of an IPv6 number; "": a unix socket
  int port = 0;
  std::string path = {};  ///< of a unix socket
  bool local = false;     ///< no other machine can be reached there, nor reach it

  bool is_socket() const { return !path.empty(); }
  /// As gRPC takes it. A loopback number is in its plain form, so that no resolver is asked for it.
  std::string target() const;
};

/// Whether port 0, any that is free, is one.
enum class FreePort : bool { kNo, kYes };

ServerAddress parse_server_address(const std::string& text, FreePort free_port = FreePort::kNo);

}  // namespace strata
