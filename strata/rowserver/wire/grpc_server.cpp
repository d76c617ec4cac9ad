// The synchronous interface of gRPC: each stream occupies a thread of the server while it lasts. A
// session begins with its first frame, so a silent client occupies none; there are at most as many
// sessions as ranks. Questions and replicas have limits of their own.
//
// A server greets with initial metadata, so that a client can tell a refused certificate from a
// server that is away.
#include "strata/rowserver/wire/grpc_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <functional>
#include <optional>
#include <semaphore>
#include <string>
#include <utility>

#include "rows.grpc.pb.h"
#include "strata/base/errors.h"
#include "strata/rowserver/wire/grpc_answers.h"
#include "strata/rowserver/wire/grpc_proof.h"
#include "strata/rowserver/wire/grpc_stream.h"
#include "strata/rowserver/wire/socket_name.h"
#include "strata/rowserver/wire/update_stream.h"

namespace strata {
namespace {

using namespace rows_over_grpc;
using ServerSession = grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
using ServerFollow = grpc::ServerWriter<grpc::ByteBuffer>;

constexpr int kMostQuestions = 64, kMostFollowers = 64;  // at once
constexpr int kHandshakeMilliseconds = 10'000;
constexpr int kIdleMilliseconds = 60'000;  // of a connection without a call

// Holds one of a limited number of places for its lifetime.
class Place {
 public:
  Place(std::counting_semaphore<>& places, const std::string& what, int most) : places_(places) {
    if (places_.try_acquire()) return;
    throw SystemError({.operation = "embed.serve",
                       .what = "the server has too many " + what + " at once",
                       .expected = "at most " + std::to_string(most),
                       .got = "one more",
                       .fix = "try again later"});
  }
  ~Place() { places_.release(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  std::counting_semaphore<>& places_;
};

// A session's stream. Its first frame arrived in the call's metadata.
class SessionFrames : public GrpcStream<ServerSession, grpc::ServerContext> {
 public:
  SessionFrames(ServerSession& stream, grpc::ServerContext& context, grpc::string_ref first)
      : GrpcStream(stream, context) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(first.data());
    first_.emplace(bytes, bytes + first.size());
  }
  bool receive(WireFrame& frame) override {
    if (!first_) return GrpcStream::receive(frame);
    frame = std::move(*first_);
    first_.reset();
    return true;
  }

 private:
  std::optional<WireFrame> first_;
};

void greet(grpc::ServerContext& context) {
  context.AddInitialMetadata(kGreeting, kGreetingVersion);
}

// Runs a handler and converts an exception to the status of its call.
template <typename Call>
grpc::Status status_of(const Call& call) {
  try {
    call();
    return grpc::Status::OK;
  } catch (const std::exception& error) {
    const Error known = to_error(error);
    return {known.kind() == ErrorKind::kUser ? grpc::StatusCode::INVALID_ARGUMENT
                                             : grpc::StatusCode::INTERNAL,
            "the call failed", encode_error(known)};
  }
}

// Replaces the generated service, which would parse frames as protobuf; here frames stay bytes.
class RowsService : public grpc::Service {
 public:
  RowsService(RowInspection& inspection, GrpcHandlers handlers, std::unique_ptr<CallGate> gate)
      : inspection_(inspection), handlers_(std::move(handlers)), gate_(std::move(gate)) {
    using grpc::internal::RpcMethod;
    using grpc::internal::RpcServiceMethod;
    AddMethod(new RpcServiceMethod(
        kSession, RpcMethod::BIDI_STREAMING,
        new grpc::internal::BidiStreamingHandler<RowsService, grpc::ByteBuffer, grpc::ByteBuffer>(
            [](RowsService* self, grpc::ServerContext* context, ServerSession* stream) {
              return self->session(*context, *stream);
            },
            this)));
    AddMethod(new RpcServiceMethod(
        kChallenge, RpcMethod::NORMAL_RPC,
        new grpc::internal::RpcMethodHandler<RowsService, proto::Text, proto::Text>(
            [](RowsService* self, grpc::ServerContext* context, const proto::Text* question,
               proto::Text* answer) {
              greet(*context);
              if (!self->gate_)
                return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "certificates do it");
              return status_of(
                  [&] { answer->set_text(challenge(*self->gate_, question->text(), *context)); });
            },
            this)));
    AddMethod(new RpcServiceMethod(
        kFollow, RpcMethod::SERVER_STREAMING,
        new grpc::internal::ServerStreamingHandler<RowsService, proto::FollowRequest,
                                                   grpc::ByteBuffer>(
            [](RowsService* self, grpc::ServerContext* context, const proto::FollowRequest* request,
               ServerFollow* stream) { return self->follow(*context, *request, *stream); },
            this)));
    answer_calls<proto::NoArguments, proto::MetricsReply>("/strata.embed.v1.Rows/Metrics");
    answer_calls<proto::DigestRequest, proto::DigestReply>("/strata.embed.v1.Rows/Digest");
    answer_calls<proto::RowRequest, proto::RowReply>("/strata.embed.v1.Rows/Row");
    answer_calls<proto::RowsRequest, proto::RowsReply>("/strata.embed.v1.Rows/ReadRows");
    answer_calls<proto::HotRequest, proto::HotReply>("/strata.embed.v1.Rows/Hot");
    answer_calls<proto::NoArguments, proto::SizesReply>("/strata.embed.v1.Rows/Sizes");
    answer_calls<proto::NoArguments, proto::LagReply>("/strata.embed.v1.Rows/Lag");
    answer_calls<proto::NoArguments, proto::RunReply>("/strata.embed.v1.Rows/Run");
  }

  CallGate* gate() const { return gate_.get(); }  ///< null with TLS

 private:
  // Adds a call that the inspection answers, for callers that prove the secret.
  template <typename Request, typename Reply>
  void answer_calls(const char* name) {
    AddMethod(new grpc::internal::RpcServiceMethod(
        name, grpc::internal::RpcMethod::NORMAL_RPC,
        new grpc::internal::RpcMethodHandler<RowsService, Request, Reply>(
            [](RowsService* self, grpc::ServerContext* context, const Request* request,
               Reply* reply) {
              greet(*context);
              return status_of([&] {
                let_in(self->gate(), *context);
                const Place place(self->questions_, "questions", kMostQuestions);
                answer(self->inspection_, *request, *reply);
              });
            },
            this)));
  }

  // Returns false for a caller without a valid proof, after sending the refusal. A caller whose
  // challenge has expired gets no refusal and retries.
  bool lets_in(const grpc::ServerContext& context, FrameStream& stream,
               const std::function<FramePieces(const Error&)>& refusal) const {
    try {
      let_in(gate(), context);
      return true;
    } catch (const UserError& error) {
      stream.send_pieces(refusal(error));
    } catch (const SystemError&) {
    }
    return false;
  }

  grpc::Status session(grpc::ServerContext& context, ServerSession& stream) {
    greet(context);
    stream.SendInitialMetadata();
    GrpcStream<ServerSession, grpc::ServerContext> unread(stream, context);
    if (!lets_in(context, unread,
                 [](const Error& error) { return MessageBody::refused(error).pieces(0); }))
      return grpc::Status::OK;
    const auto& metadata = context.client_metadata();
    const auto first = metadata.find(kFirstFrame);
    if (first == metadata.end()) return refuse_silence(context, stream);
    SessionFrames frames(stream, context, first->second);
    return status_of([&] { handlers_.session(frames); });
  }
  // Sends a frame, because a trainer of an earlier version expects one.
  grpc::Status refuse_silence(grpc::ServerContext& context, ServerSession& stream) {
    GrpcStream<ServerSession, grpc::ServerContext> frames(stream, context);
    frames.send(
        MessageBody::refused(UserError({.operation = "embed.hello",
                                        .what = "the session has no first frame",
                                        .expected = "a trainer of this version of the program",
                                        .got = "a call without strata-first-frame-bin",
                                        .fix = "start servers and trainers with the same program"}))
            .frame(0));
    return grpc::Status::OK;
  }
  grpc::Status follow(grpc::ServerContext& context, const proto::FollowRequest& request,
                      ServerFollow& stream) {
    greet(context);
    stream.SendInitialMetadata();
    GrpcStream<ServerFollow, grpc::ServerContext> frames(stream, context);
    if (!lets_in(context, frames, refused_follower)) return grpc::Status::OK;
    return status_of([&] {
      const Place place(followers_, "replicas", kMostFollowers);
      handlers_.follow(request_of(request), frames);
    });
  }

  RowInspection& inspection_;
  GrpcHandlers handlers_;
  std::unique_ptr<CallGate> gate_;
  std::counting_semaphore<> questions_{kMostQuestions}, followers_{kMostFollowers};
};

std::unique_ptr<CallGate> make_gate(const ServerAccess& access) {
  const std::string secret = access.call_secret();
  return secret.empty() ? nullptr : std::make_unique<CallGate>(secret);
}

[[noreturn]] void refuse_address(const std::string& listen) {
  throw UserError({.operation = "embed.listen",
                   .where = listen,
                   .what = "the server cannot listen there",
                   .expected = "HOST:PORT of this machine with a free port, or unix:PATH in a "
                               "folder that is there",
                   .got = "an address that another process has, or that is not here",
                   .fix = "end who has it, or choose another address"});
}

// Null for TCP.
std::unique_ptr<SocketName> reserve_socket(const std::string& listen,
                                           const ServerAddress& address) {
  if (!address.is_socket()) return nullptr;
  std::unique_ptr<SocketName> name = SocketName::reserve(address.path);
  if (!name) refuse_address(listen);
  return name;
}

// Bounds the memory and the time that a client without proof can occupy.
void set_bounds(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.SetMaxSendMessageSize(kLargestMessage);
  for (const auto& [name, bytes] : kSizes) builder.AddChannelArgument(name, bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kLargestMetadata);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMilliseconds);
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
}

}  // namespace

struct GrpcServer::Parts {
  RowsService service;
  std::string host;
  int port = 0;
  std::unique_ptr<SocketName> socket;
  std::unique_ptr<grpc::Server> server;
};

GrpcServer::GrpcServer(const std::string& listen, const ServerAccess& access,
                       RowInspection& inspection, GrpcHandlers handlers)
    : parts_(new Parts{.service = RowsService(inspection, std::move(handlers), make_gate(access)),
                       .host = listen,
                       .port = 0,
                       .socket = nullptr,
                       .server = nullptr}) {
  const TlsFiles& tls = access.tls;
  quieten();
  const ServerAddress address = require_tls_beyond_machine(listen, tls, FreePort::kYes);
  grpc::EnableDefaultHealthCheckService(true);
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (tls.on()) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    const TlsTexts texts = read_tls(tls);
    options.pem_root_certs = texts.authority;
    options.pem_key_cert_pairs.push_back({texts.key, texts.certificate});
    credentials = grpc::SslServerCredentials(options);
  }
  parts_->socket = reserve_socket(listen, address);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(
      parts_->socket ? "unix:" + parts_->socket->listen_path() : address.target(), credentials,
      &parts_->port);
  builder.RegisterService(&parts_->service);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  set_bounds(builder);
  parts_->server = builder.BuildAndStart();
  const bool listens =
      parts_->server && (parts_->socket ? parts_->socket->take() : parts_->port != 0);
  if (!listens) refuse_address(listen);
  if (!parts_->socket) parts_->host = listen.substr(0, listen.rfind(':'));
  if (CallGate* const gate = parts_->service.gate())
    gate->listen_at(names_of_address(address.host, parts_->port));
}

GrpcServer::~GrpcServer() { shut_down(); }

std::string GrpcServer::address() const {
  return parts_->host.starts_with("unix:") ? parts_->host
                                           : parts_->host + ":" + std::to_string(parts_->port);
}

void GrpcServer::set_serving(bool serving) {
  if (auto* health = parts_->server->GetHealthCheckService()) health->SetServingStatus(serving);
}

void GrpcServer::shut_down() {
  parts_->socket.reset();
  parts_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  parts_->server->Wait();
}

}  // namespace strata
