#include "strata/rowserver/wire/grpc_peer.h"

#include <chrono>
#include <thread>

#include "rows.grpc.pb.h"
#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/rowserver/wire/grpc_proof.h"
#include "strata/rowserver/wire/grpc_stream.h"
#include "strata/rowserver/wire/tls_probe.h"

namespace strata::rows_over_grpc {
namespace {

namespace proto = embed::v1;

constexpr std::chrono::milliseconds kPause{20};  // before a peer is asked once more
constexpr std::chrono::seconds kStrangerPatience{5};

constexpr ErrorSource kPeerErrors{"embed.tls"};

// In gRPC's words there is no more than a text to tell a refused certificate by. Others tell of
// handshakes that a slow server or none has left unanswered.
void refuse_certificates(const Peer& peer, const std::string& text) {
  const bool handshake = text.find("Ssl handshake failed") != std::string::npos ||
                         text.find("CERTIFICATE") != std::string::npos ||
                         text.find("Peer name") != std::string::npos;
  if (handshake && text.find("wrong version number") != std::string::npos)
    throw kPeerErrors.user(peer.name, "the server has no TLS, and certificates were given",
                           "a server with TLS", text,
                           "start the server with certificate, key and authority");
  const TlsObjection objection =
      handshake ? TlsObjection::kNothing : find_tls_objection(peer.address, peer.tls);
  if (objection == TlsObjection::kServerHasTls)
    throw kPeerErrors.user(peer.name, "the server has TLS, and no certificate was given",
                           "certificate, key and authority", "none of them",
                           "name the three files in STRATA_TLS_CERTIFICATE, STRATA_TLS_KEY and "
                           "STRATA_TLS_AUTHORITY");
  if (!handshake && objection == TlsObjection::kNothing) return;
  throw kPeerErrors.user(
      peer.name, "server and trainer don't accept each other's certificates",
      "certificates of the authority that the other side was given",
      handshake ? text
                : "the server closed the connection at the sight of " + quote(peer.tls.certificate),
      "give both sides certificates of one authority");
}

[[noreturn]] void refuse_service(const Peer& peer, const std::string& got) {
  throw UserError({.operation = "embed.connect",
                   .where = peer.name,
                   .what = "what answers there is no server of rows of this version",
                   .expected = "strata embed-server, of the version of this program",
                   .got = got,
                   .fix = "name the address at which strata embed-server listens"});
}

bool came_from_the_server(grpc::StatusCode code) {
  return code != grpc::StatusCode::UNAVAILABLE && code != grpc::StatusCode::CANCELLED &&
         code != grpc::StatusCode::DEADLINE_EXCEEDED;
}

// Asks once more: what a server that dies leaves of a stream may look like a stranger's answer.
bool answers_as_stranger(const Peer& peer) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStrangerPatience);
  proto::LagReply lag;
  const grpc::Status status = proto::Rows::NewStub(peer.channel)->Lag(&context, {}, &lag);
  return came_from_the_server(status.error_code()) && !has_greeted(peer, context);
}

void refuse_if_stranger(const Peer& peer, const grpc::Status& status) {
  if (!answers_as_stranger(peer)) return;
  std::this_thread::sleep_for(kPause);
  if (!answers_as_stranger(peer)) return;
  const std::string& text = status.error_message();
  refuse_service(peer, came_from_the_server(status.error_code()) && !status.ok()
                           ? "a service of gRPC that refuses the call" +
                                 (text.empty() ? "" : ": " + excerpt(text))
                           : "an answer without its greeting");
}

}  // namespace

Peer reach(const std::string& name, const ServerAccess& access) {
  const TlsFiles& tls = access.tls;
  quieten();
  Peer peer{.name = name,
            .address = require_tls_beyond_machine(name, tls),
            .tls = tls,
            .secret = access.call_secret(),
            .channel = nullptr};
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kLargestMessage);
  arguments.SetMaxSendMessageSize(kLargestMessage);
  // A proxy would see what travels without TLS, and reaches no loopback.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);  // a server that is slow
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  for (const auto& [argument, bytes] : kSizes) arguments.SetInt(argument, bytes);
  // Each rank has its own channel: gRPC must not share connections between them.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (tls.on()) {
    grpc::SslCredentialsOptions options;
    const TlsTexts texts = read_tls(tls);
    options.pem_root_certs = texts.authority;
    options.pem_private_key = texts.key;
    options.pem_cert_chain = texts.certificate;
    credentials = grpc::SslCredentials(options);
  }
  peer.channel = grpc::CreateCustomChannel(peer.address.target(), credentials, arguments);
  return peer;
}

bool has_greeted(const Peer& peer, const grpc::ClientContext& answered) {
  const auto& metadata = answered.GetServerInitialMetadata();
  const auto greeting = metadata.find(kGreeting);
  if (greeting == metadata.end()) return false;
  if (greeting->second != kGreetingVersion)
    refuse_service(peer, "a server of rows of another version");
  return true;
}

// What has not greeted is no server of rows, or none has been reached.
void refuse_stranger(const Peer& peer, const grpc::Status& status) {
  const std::string& text = status.error_message();
  const bool cancelled = status.error_code() == grpc::StatusCode::CANCELLED;  // by us, ungreeted
  if (cancelled || came_from_the_server(status.error_code())) refuse_if_stranger(peer, status);
  if (text.find("Failed parsing HTTP/2") != std::string::npos ||
      text.find("http1.x server") != std::string::npos)
    refuse_service(peer, "an answer that is not of gRPC");
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) refuse_certificates(peer, text);
  throw SystemError({.operation = "embed.connect",
                     .where = peer.name,
                     .what = "the server of rows cannot be reached: " + text,
                     .expected = "a server that answers",
                     .got = "none",
                     .fix = "start strata embed-server there"});
}

// Status of a call that has ended.
void require_answer(const Peer& peer, const grpc::Status& status,
                    const grpc::ClientContext& answered) {
  if (!has_greeted(peer, answered)) refuse_stranger(peer, status);
  if (status.ok()) return;
  if (!status.error_details().empty()) throw_error(decode_error(status.error_details()));
  refuse_stranger(peer, {grpc::StatusCode::UNAVAILABLE, status.error_message()});
}

void prove_call(const Peer& peer, grpc::ClientContext& call) {
  if (peer.secret.empty()) return;
  const CallProof proof(peer.name, peer.secret);
  grpc::ClientContext asking;
  std::string challenge;
  require_answer(peer, ask_challenge(peer.channel, proof, asking, challenge), asking);
  add_proof(call, proof, challenge, asking);
}

}  // namespace strata::rows_over_grpc
