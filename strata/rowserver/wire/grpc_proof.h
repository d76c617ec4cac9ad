// How calls of gRPC carry the proofs of call_proof.h: as metadata, after a call for the challenge.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "strata/rowserver/wire/call_proof.h"

namespace strata::rows_over_grpc {

inline constexpr const char* kChallenge = "/strata.embed.v1.Rows/Challenge";

/// Requests a challenge in the call `asking`.
grpc::Status ask_challenge(const std::shared_ptr<grpc::Channel>& channel, const CallProof& proof,
                           grpc::ClientContext& asking, std::string& challenge);
/// Adds the proof to a call that has not started, after `asking` has been answered.
void add_proof(grpc::ClientContext& call, const CallProof& proof, const std::string& challenge,
               const grpc::ClientContext& asking);

/// The server's answer to the call for a challenge.
std::string challenge(CallGate& gate, const std::string& question,
                      const grpc::ServerContext& context);
/// Throws if the call has no valid proof. `gate`: null with TLS.
void let_in(CallGate* gate, const grpc::ServerContext& context);

/// The names that gRPC gives to the addresses of a server that listens at `host`, a name or a
/// number, and `port`. Empty host: a unix socket.
std::vector<std::string> names_of_address(const std::string& host, int port);

}  // namespace strata::rows_over_grpc
