/// Reads the address of a server, HOST:PORT or unix:PATH, and decides whether bytes that go
/// there stay on this machine.
///
/// Threads  any.
/// Errors   UserError: text that is no address, an impossible port or path.
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
  /// In gRPC's syntax. A loopback number has its canonical form, so that gRPC needs no resolver.
  std::string target() const;
};

/// Whether port 0, which means any free port, is allowed.
enum class FreePort : bool { kNo, kYes };

ServerAddress parse_server_address(const std::string& text, FreePort free_port = FreePort::kNo);

}  // namespace strata
