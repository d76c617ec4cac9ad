// The client's side of a connection to a server of rows: opens it, proves the secret, and tells a server of rows from
// another service.
//
// Errors   UserError: another service or version, certificates that are not accepted, another secret. SystemError:
//          the server is away.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "strata/rowserver/wire/server_access.h"
#include "strata/rowserver/wire/server_address.h"

namespace strata::rows_over_grpc {

struct Peer {
  std::string name;  ///< for errors
  ServerAddress address;
  TlsFiles tls;
  std::string secret;  ///< empty with TLS
  std::shared_ptr<grpc::Channel> channel;
};

Peer reach(const std::string& name, const ServerAccess& access);

/// Asks for a challenge and puts the proof into `call`, which begins afterwards.
void prove_call(const Peer& peer, grpc::ClientContext& call);

/// Whether a server of rows has sent the metadata of its answer; throws for one of another version.
bool has_greeted(const Peer& peer, const grpc::ClientContext& answered);

/// Throws unless a server of rows has answered the call, and what it refuses.
void require_answer(const Peer& peer, const grpc::Status& status,
                    const grpc::ClientContext& answered);

/// Throws for a peer that has not greeted: another service, or none that can be reached.
[[noreturn]] void refuse_stranger(const Peer& peer, const grpc::Status& status);

}  // namespace strata::rows_over_grpc
