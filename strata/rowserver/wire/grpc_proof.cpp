#include "strata/rowserver/wire/grpc_proof.h"

#include <chrono>

#include "rows.grpc.pb.h"
#include "strata/transport/host_address.h"

namespace strata::rows_over_grpc {
namespace {

constexpr const char* kProof = "strata-proof";
constexpr const char* kSocket = "unix";  // its path may be written in many ways
constexpr std::chrono::seconds kPatience{10};

// As names_of_address() writes it.
std::string name_of_peer(const std::string& peer) {
  if (peer.starts_with("unix")) return kSocket;
  std::string name = peer;
  for (const auto& [code, bracket] : {std::pair{"%5B", "["}, {"%5D", "]"}})
    if (const std::size_t at = name.find(code); at != std::string::npos)
      name.replace(at, 3, bracket);
  return name;
}

}  // namespace

grpc::Status ask_challenge(const std::shared_ptr<grpc::Channel>& channel, const CallProof& proof,
                           grpc::ClientContext& asking, std::string& challenge) {
  asking.set_deadline(std::chrono::system_clock::now() + kPatience);
  embed::v1::Text question, answer;
  question.set_text(proof.question());
  const grpc::Status status =
      embed::v1::Rows::NewStub(channel)->Challenge(&asking, question, &answer);
  challenge = answer.text();
  return status;
}

void add_proof(grpc::ClientContext& call, const CallProof& proof, const std::string& challenge,
               const grpc::ClientContext& asking) {
  call.AddMetadata(kProof, proof.answer_to(challenge, name_of_peer(asking.peer())));
}

std::string challenge(CallGate& gate, const std::string& question,
                      const grpc::ServerContext& context) {
  return gate.challenge(question, context.peer());
}

void let_in(CallGate* gate, const grpc::ServerContext& context) {
  if (!gate) return;
  const auto& metadata = context.client_metadata();
  const auto proof = metadata.find(kProof);
  gate->let_in(
      proof == metadata.end() ? "" : std::string(proof->second.data(), proof->second.size()),
      context.peer());
}

std::vector<std::string> names_of_address(const std::string& host, int port) {
  if (host.empty()) return {kSocket};
  std::vector<std::string> names;
  for (const HostAddress& address :
       resolve(host, port, std::chrono::steady_clock::now() + kPatience)) {
    const bool is_ipv6 = address.get()->sa_family == AF_INET6;
    names.push_back((is_ipv6 ? "ipv6:[" + address.text() + "]:" : "ipv4:" + address.text() + ":") +
                    std::to_string(port));
  }
  return names;
}

}  // namespace strata::rows_over_grpc
