/// Serves HTTP/1.1 from a table of routes, with or without TLS.
///
/// Every connection has limits of bytes and time, so a client that sends or reads slowly, floods
/// headers or vanishes costs the server a bounded number of bytes for a bounded time. The server
/// itself answers a request beyond a limit or a rule with
///   400  malformed; Content-Length together with Transfer-Encoding, or several Host fields
///   404  no route has the path             405  no route of the path has the method
///   408  part of a request, not all of it in time
///   413  the body is longer than the limit 417  an Expect other than 100-continue
///   431  the header is longer than the limit
///   501  a Transfer-Encoding other than chunked
///   503  too many connections or bytes of bodies, or the server drains (with Retry-After)
/// and closes the connection if it has not read the whole request. An idle connection, and one
/// whose client does not read its answer in time, closes without an answer. HTTP/1.1 without Host
/// is accepted. HEAD is GET without the body; OPTIONS states the methods of a path.
///
/// Threads  one thread for all connections; handlers run on `handler_threads` others, and streams
///          and later answers need none. The methods: any.
/// Errors   UserError: an address that has no name, or where the server cannot listen; a
///          certificate or key that cannot be used.
/// Example  HttpServer server({.port = 9101}, {{"GET", "/health", answer_health}});
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "strata/http/routes.h"

namespace strata {

struct HttpLimits {
  int connections = 64;  ///< at once; 32 more get status 503, the next wait in the kernel's queue
  std::size_t header_bytes = std::size_t{8} << 10;  ///< of the request line; of all headers
  std::size_t body_bytes = std::size_t{64} << 10;   ///< of a body, unless its route states another
  std::size_t all_body_bytes = std::size_t{256} << 20;  ///< of the bodies of all open requests
  /// From the answer before (at first: from the connection's start; with TLS: from the end of the
  /// handshake, which has the same limit) to the last byte of the request.
  std::chrono::milliseconds request{10'000};
  /// For the client to read a whole answer; of a stream, the bytes queued at one time.
  std::chrono::milliseconds answer{10'000};
  std::size_t stream_bytes = std::size_t{256} << 10;  ///< queued in a stream, plus one piece
  int handler_threads = 2;
};

/// Makes connections use TLS 1.2 or later. Clients need no certificate.
struct HttpTls {
  std::string
      certificate_file;  ///< PEM: the server's certificate, then those between it and a root
  std::string key_file;  ///< PEM, without a password
};

struct HttpListen {
  std::string host = "127.0.0.1";  ///< a name or a number without brackets
  int port = 0;                    ///< 0: any free port
  HttpLimits limits = {};
  std::optional<HttpTls> tls = {};
  /// Sees a request when its header has been read, before its route is looked up and its body read:
  /// an answer (not a stream) refuses the request (401, 429), none admits it. Runs on the server's
  /// thread: it must return soon and not throw.
  std::function<std::optional<HttpAnswer>(const HttpRequest&)> admit = {};
  /// Changes the answers that the server itself gives, such as 404 and the 204 of OPTIONS, for
  /// example to JSON; their body is a plain text or empty. It may not change the status. The
  /// request has what was read of it: perhaps no path. Runs on the server's thread, as `admit`.
  std::function<void(HttpAnswer&, const HttpRequest&)> refusal = {};
};

class HttpServer {
 public:
  HttpServer(HttpListen listen, HttpRoutes routes);
  /// Closes all connections, calls what is registered for that, and returns when no handler runs.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string address() const;  ///< "127.0.0.1:9101", with the actual port
  int connections() const;      ///< open ones
  int requests() const;         ///< being answered, without those of routes `while_draining`

  /// From now on requests get status 503, except to routes `while_draining`; those being answered
  /// continue. The port stays open, for probes of health.
  void stop_accepting();
  /// Waits until no request is being answered (see requests()); false: the deadline came first.
  bool wait_idle(std::chrono::steady_clock::time_point deadline);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
