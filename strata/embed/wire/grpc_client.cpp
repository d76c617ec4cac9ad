// A stream has no deadline, since it lasts as long as a run; keepalive pings find a peer that is gone, and the
// sessions above send statuses that show one that hangs.
#include "strata/embed/wire/grpc_client.h"

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/embed/wire/grpc_proof.h"
#include "strata/embed/wire/grpc_stream.h"
#include "strata/embed/wire/tls_probe.h"

namespace strata {
namespace {

using namespace rows_over_grpc;
using ClientSession = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
using ClientFollow = grpc::ClientReader<grpc::ByteBuffer>;

constexpr std::chrono::milliseconds kLook{20};  // between two looks, at a request to stop or a peer
constexpr std::chrono::seconds kStrangerPatience{5};

// A server and the way to it.
struct Peer {
  std::string name;  // for errors
  ServerAddress address;
  TlsFiles tls;
  std::string secret;  // empty with TLS
  std::shared_ptr<grpc::Channel> channel;
};

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
  // A channel of its own for each rank: connections are not shared behind our back.
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

[[noreturn]] void refuse_tls(const Peer& peer, const std::string& what, const std::string& expected,
                             const std::string& got, const std::string& fix) {
  throw UserError({.operation = "embed.tls",
                   .where = peer.name,
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = fix});
}

// In gRPC's words there is no more than a text to tell a refused certificate by. Others tell of handshakes that a
// slow server or none has left unanswered.
void refuse_certificates(const Peer& peer, const std::string& text) {
  const bool handshake = text.find("Ssl handshake failed") != std::string::npos ||
                         text.find("CERTIFICATE") != std::string::npos ||
                         text.find("Peer name") != std::string::npos;
  if (handshake && text.find("wrong version number") != std::string::npos)
    refuse_tls(peer, "the server has no TLS, and certificates were given", "a server with TLS",
               text, "start the server with certificate, key and authority");
  const TlsObjection objection =
      handshake ? TlsObjection::kNothing : find_tls_objection(peer.address, peer.tls);
  if (objection == TlsObjection::kServerHasTls)
    refuse_tls(peer, "the server has TLS, and no certificate was given",
               "certificate, key and authority", "none of them",
               "name the three files in STRATA_TLS_CERTIFICATE, STRATA_TLS_KEY and "
               "STRATA_TLS_AUTHORITY");
  if (!handshake && objection == TlsObjection::kNothing) return;
  refuse_tls(
      peer, "server and trainer don't accept each other's certificates",
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

// Metadata of an answer, if any has come.
template <typename Metadata>
bool has_greeted(const Peer& peer, const Metadata& metadata) {
  const auto greeting = metadata.find(kGreeting);
  if (greeting == metadata.end()) return false;
  if (greeting->second != kGreetingVersion)
    refuse_service(peer, "a server of rows of another version");
  return true;
}

// Asks once more: what a server that dies leaves of a stream may look like a stranger's answer.
bool answers_as_stranger(const Peer& peer) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStrangerPatience);
  proto::Text question, answer;
  question.set_text("lag");
  const grpc::Status status = proto::Rows::NewStub(peer.channel)->Ask(&context, question, &answer);
  return came_from_the_server(status.error_code()) &&
         !has_greeted(peer, context.GetServerInitialMetadata());
}

void refuse_if_stranger(const Peer& peer, const grpc::Status& status) {
  if (!answers_as_stranger(peer)) return;
  std::this_thread::sleep_for(kLook);
  if (!answers_as_stranger(peer)) return;
  const std::string& text = status.error_message();
  refuse_service(peer, came_from_the_server(status.error_code()) && !status.ok()
                           ? "a service of gRPC that refuses the call" +
                                 (text.empty() ? "" : ": " + excerpt(text))
                           : "an answer without its greeting");
}

// What has not greeted is no server of rows, or none has been reached.
[[noreturn]] void refuse_stranger(const Peer& peer, const grpc::Status& status) {
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

// Of a call that came to its end.
void require_answer(const Peer& peer, const grpc::Status& status,
                    const grpc::ClientContext& context) {
  if (!has_greeted(peer, context.GetServerInitialMetadata())) refuse_stranger(peer, status);
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

// A client's stream and all that it needs.
template <typename Stream>
class ClientStream : public FrameStream {
 public:
  ClientStream(const Peer& peer, std::shared_ptr<grpc::ClientContext> context, const auto& open)
      : channel_(peer.channel), context_(std::move(context)), stream_(open(*channel_, *context_)) {
    stream_->WaitForInitialMetadata();
    try {
      if (!has_greeted(peer, context_->GetServerInitialMetadata())) refuse_stranger(peer, end());
    } catch (...) {
      end();
      throw;
    }
    frames_ = std::make_unique<GrpcStream<Stream, grpc::ClientContext>>(*stream_, *context_);
  }
  ~ClientStream() override { end(); }
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  bool send(const WireFrame& frame) override { return frames_->send(frame); }
  bool send_pieces(const FramePieces& pieces) override { return frames_->send_pieces(pieces); }
  bool receive(WireFrame& frame) override { return frames_->receive(frame); }
  void cancel() override { frames_->cancel(); }
  bool alive() override { return frames_->alive(); }

 private:
  grpc::Status end() {
    if (ended_) return grpc::Status::OK;
    ended_ = true;
    context_->TryCancel();
    return stream_->Finish();
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<GrpcStream<Stream, grpc::ClientContext>> frames_;
  bool ended_ = false;
};

// The call begins with the first frame, which travels in its metadata.
class SessionStream : public FrameStream {
 public:
  explicit SessionStream(std::shared_ptr<const Peer> peer) : peer_(std::move(peer)) {}

  bool send(const WireFrame& frame) override {
    if (stream_) return stream_->send(frame);
    open(frame);
    return true;
  }
  bool send_pieces(const FramePieces& pieces) override {
    return stream_ ? stream_->send_pieces(pieces) : send(pieces.joined());
  }
  bool receive(WireFrame& frame) override { return stream_ && stream_->receive(frame); }
  void cancel() override {
    cancelled_ = true;
    context_->TryCancel();
  }
  bool alive() override { return !cancelled_; }

 private:
  void open(const WireFrame& first) {
    if (first.size() > kLargestFirstFrame)
      throw UserError({.operation = "embed.connect",
                       .where = peer_->name,
                       .what = "too many runs of this trainer ended before their first checkpoint",
                       .expected = std::to_string(kLargestFirstFrame) + " bytes that name them",
                       .got = std::to_string(first.size()),
                       .fix = "remove runs-without-checkpoint.json from train.checkpoint_folder, "
                              "and give the servers empty folders"});
    prove_call(*peer_, *context_);
    context_->AddMetadata(kFirstFrame, {reinterpret_cast<const char*>(first.data()), first.size()});
    stream_ = std::make_unique<ClientStream<ClientSession>>(
        *peer_, context_, [](grpc::Channel& to, grpc::ClientContext& context) {
          const grpc::internal::RpcMethod method(kSession,
                                                 grpc::internal::RpcMethod::BIDI_STREAMING);
          return std::unique_ptr<ClientSession>(
              grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
                  &to, method, &context));
        });
  }

  std::shared_ptr<const Peer> peer_;
  std::shared_ptr<grpc::ClientContext> context_ = std::make_shared<grpc::ClientContext>();
  std::unique_ptr<ClientStream<ClientSession>> stream_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

ConnectStream grpc_sessions(const std::string& address, const ServerAccess& access) {
  const auto peer = std::make_shared<const Peer>(reach(address, access));
  return [peer] { return std::make_unique<SessionStream>(peer); };
}

std::unique_ptr<FrameStream> grpc_follow(const std::string& address, const ServerAccess& access,
                                         const std::string& question) {
  const Peer peer = reach(address, access);
  const auto called = std::make_shared<grpc::ClientContext>();
  prove_call(peer, *called);
  return std::make_unique<ClientStream<ClientFollow>>(
      peer, called, [&](grpc::Channel& to, grpc::ClientContext& context) {
        proto::Text text;
        text.set_text(question);
        const grpc::internal::RpcMethod method(kFollow,
                                               grpc::internal::RpcMethod::SERVER_STREAMING);
        return std::unique_ptr<ClientFollow>(
            grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(&to, method, &context,
                                                                          text));
      });
}

std::string grpc_ask(const std::string& address, const ServerAccess& access,
                     const std::string& question, double seconds, const std::atomic<bool>* stop) {
  if (utf8_bytes(question) < question.size())
    throw UserError({.operation = "embed.ask",
                     .where = address,
                     .what = "the question is not UTF-8",
                     .expected = "UTF-8",
                     .got = quote(question),
                     .fix = "write it in UTF-8; `locale` says what the terminal writes"});
  const Peer peer = reach(address, access);
  const auto stub = proto::Rows::NewStub(peer.channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds)));
  std::jthread watching;
  if (stop)
    watching = std::jthread([&context, stop](const std::stop_token& ended) {
      while (!ended.stop_requested() && !*stop) std::this_thread::sleep_for(kLook);
      if (*stop) context.TryCancel();
    });
  prove_call(peer, context);
  proto::Text text, answer;
  text.set_text(question);
  const grpc::Status status = stub->Ask(&context, text, &answer);
  require_answer(peer, status, context);
  return answer.text();
}

std::string grpc_health(const std::string& address, const ServerAccess& access) {
  const Peer peer = reach(address, {access.tls, "none is asked for"});
  // grpc.health.v1.Health/Check with an empty request; field 1 of its answer is the status.
  grpc::GenericStub stub(peer.channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  grpc::CompletionQueue queue;
  const grpc::Slice empty("");
  grpc::ByteBuffer request(&empty, 1), answer;
  grpc::Status status;
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) refuse_stranger(peer, status);
  grpc::Slice slice;
  if (!answer.DumpToSingleSlice(&slice).ok() || slice.size() < 2) return "UNKNOWN";
  return slice.begin()[1] == 1 ? "SERVING" : "NOT_SERVING";
}

}  // namespace strata
