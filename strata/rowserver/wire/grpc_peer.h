// The client's side of a connection to a server of rows: opens it, proves the secret, and
// distinguishes a server of rows from another service.
//
// Errors   UserError: another service or version, certificates that are not accepted, another
//          secret. SystemError: the server is away.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "strata/rowserver/wire/server_access.h"
#include "strata/transport/server_address.h"

namespace strata::rows_over_grpc {

struct Peer {
  std::string name;  ///< for errors
  ServerAddress address;
  TlsFiles tls;
  std::string secret;  ///< empty with TLS
  std::shared_ptr<grpc::Channel> channel;
};

Peer reach(const std::string& name, const ServerAccess& access);

/// Requests a challenge and adds the proof to `call`, which has not started yet.
void prove_call(const Peer& peer, grpc::ClientContext& call);

/// Whether the answer has the metadata of a server of rows; throws for a server of another version.
bool has_greeted(const Peer& peer, const grpc::ClientContext& answered);

/// Throws unless a server of rows answered the call, or the error with which it refused the call.
void require_answer(const Peer& peer, const grpc::Status& status,
                    const grpc::ClientContext& answered);

/// Throws for a peer without greeting: another service, or an unreachable one.
[[noreturn]] void refuse_stranger(const Peer& peer, const grpc::Status& status);

}  // namespace strata::rows_over_grpc
