/// Carries messages between trainers and servers of rows by gRPC: over TCP with mutual TLS, or on one
/// machine over loopback and unix sockets.
///
/// Beyond the machine TLS is required on both sides: each shows a certificate that the authority has
/// signed. The server also answers gRPC's health service.
///
/// Threads  a connection: one sends, one receives; the rest: any.
/// Errors   UserError: an address that cannot be listened to or has no TLS, certificates that cannot
///          be read or are not accepted. SystemError: nobody answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "strata/embed/wire/frame_stream.h"

namespace strata {

/// Files in PEM; all or none.
struct TlsFiles {
  std::string certificate, key;
  std::string authority;  ///< that signed the other side's certificate
  bool on() const { return !certificate.empty() || !key.empty() || !authority.empty(); }
};

/// What STRATA_TLS_CERTIFICATE, STRATA_TLS_KEY and STRATA_TLS_AUTHORITY name: each process has its own files,
/// so they are not the recipe's.
TlsFiles tls_from_environment();

/// What a server does with what comes.
struct GrpcHandlers {
  std::function<void(FrameStream&)> session;
  std::function<std::string(const std::string&)> ask;
  /// Sends until the stream breaks.
  std::function<void(const std::string& question, FrameStream&)> follow;
};

class GrpcServer {
 public:
  /// `listen`: "host:port", port 0 for any that is free, or "unix:path".
  GrpcServer(const std::string& listen, const TlsFiles& tls, GrpcHandlers handlers);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  std::string address() const;     ///< with the port that it has
  void set_serving(bool serving);  ///< what the health service says
  void shut_down();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Ways to a server: each call opens a session.
ConnectStream grpc_sessions(const std::string& address, const TlsFiles& tls);

std::string grpc_ask(const std::string& address, const TlsFiles& tls, const std::string& question,
                     double seconds = 10);

std::unique_ptr<FrameStream> grpc_follow(const std::string& address, const TlsFiles& tls,
                                         const std::string& question);

/// What the server's health service says of it: "SERVING", "NOT_SERVING".
std::string grpc_health(const std::string& address, const TlsFiles& tls);

}  // namespace strata
