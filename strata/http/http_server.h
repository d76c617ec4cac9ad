/// Serves HTTP/1.1 from a table of routes, without TLS and without authentication.
///
/// Every connection has limits of bytes and time, so a client that sends or reads slowly, floods
/// headers or vanishes costs the server a bounded number of bytes for a bounded time. A request
/// beyond a limit gets status 431 (header), 413 (body) or 400 (malformed), and its connection
/// closes. A connection without a whole request in time, or whose client does not read the answer
/// in time, closes without an answer.
///
/// Threads  one thread for all connections; handlers run on `handler_threads` others.
/// Errors   UserError: an address that has no name, or where the server cannot listen.
/// Example  HttpServer server({.port = 9101}, {{"GET", "/health", answer_health}});
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "strata/http/routes.h"

namespace strata {

struct HttpLimits {
  int connections = 64;  ///< at once; more wait in the kernel's queue until one closes
  std::size_t header_bytes = std::size_t{8} << 10;
  std::size_t body_bytes = std::size_t{64} << 10;
  /// From the answer before (at first: from the connection's start) to the last byte of the
  /// request.
  std::chrono::milliseconds request{10'000};
  std::chrono::milliseconds answer{10'000};  ///< for the client to read the whole answer
  int handler_threads = 2;
};

struct HttpListen {
  std::string host = "127.0.0.1";  ///< a name or a number without brackets
  int port = 0;                    ///< 0: any free port
  HttpLimits limits = {};
};

class HttpServer {
 public:
  HttpServer(HttpListen listen, HttpRoutes routes);
  /// Closes all connections and returns when no handler runs.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string address() const;  ///< "127.0.0.1:9101", with the actual port
  int connections() const;      ///< open ones

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
