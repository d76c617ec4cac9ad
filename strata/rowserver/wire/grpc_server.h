/// Serves rows by gRPC: over TCP with mutual TLS, or on one machine over loopback and unix sockets.
///
/// Without TLS every call proves that it knows the secret (call_proof.h). Between machines TLS is
/// required, and both sides present a certificate that the authority has signed. gRPC's health
/// service answers without proof.
///
/// Threads  any; each stream has a thread of the server while it lasts.
/// Errors   UserError: an address that cannot be listened to or has no TLS, certificates that
///          cannot be read.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "strata/rowserver/wire/frame_stream.h"
#include "strata/rowserver/wire/inspection.h"
#include "strata/rowserver/wire/server_access.h"
#include "strata/rowserver/wire/update_stream.h"

namespace strata {

/// What a server does with streams.
struct GrpcHandlers {
  std::function<void(FrameStream&)> session;
  /// Sends until the stream breaks.
  std::function<void(const FollowRequest&, FrameStream&)> follow;
};

class GrpcServer {
 public:
  /// `listen`: "host:port", port 0 for any that is free, or "unix:path".
  /// `inspection` answers every other call; it outlives the server.
  GrpcServer(const std::string& listen, const ServerAccess& access, RowInspection& inspection,
             GrpcHandlers handlers);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  std::string address() const;     ///< with the actual port
  void set_serving(bool serving);  ///< the answer of the health service
  void shut_down();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
