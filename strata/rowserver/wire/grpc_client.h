/// Opens streams to servers of rows by gRPC (grpc_server.h): sessions of ranks, updates for
/// replicas; asks for health.
///
/// Threads  a connection: one sends, one receives; the rest: any.
/// Errors   UserError: an address beyond the machine without TLS, certificates that cannot be read
///          or are not accepted. SystemError: no server answers.
#pragma once

#include <memory>
#include <string>

#include "strata/rowserver/wire/frame_stream.h"
#include "strata/rowserver/wire/server_access.h"
#include "strata/rowserver/wire/update_stream.h"

namespace strata {

/// Returns a function that opens a session with each call.
ConnectStream grpc_sessions(const std::string& address, const ServerAccess& access);

std::unique_ptr<FrameStream> grpc_follow(const std::string& address, const ServerAccess& access,
                                         const FollowRequest& request);

/// The answer of the server's health service: "SERVING", "NOT_SERVING".
std::string grpc_health(const std::string& address, const ServerAccess& access);

}  // namespace strata
