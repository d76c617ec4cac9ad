// The synchronous interface: a stream has a thread of the server while it lasts, of which there are as
// many as ranks. A stream has no deadline, since it lasts as long as a run; keepalive pings find a peer
// that is gone, and the sessions above send statuses that show one that hangs.
//
// A server greets with initial metadata, so that connecting either finds it there or says why not: a
// certificate that is not accepted must not look like a server that is away.
#include "strata/embed/grpc_transport.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "rows.grpc.pb.h"
#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"

namespace strata {
namespace {

namespace proto = embed::v1;
constexpr int kLargestMessage = 1 << 30;
constexpr const char* kGreeting = "strata-rows";

// What goes wrong is in our errors; gRPC's own log would repeat it at every try.
void quieten() {
  static const bool once = [] {
    if (!std::getenv("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
    return true;
  }();
  static_cast<void>(once);
}

std::string read_pem(const std::string& path, const std::string& what) {
  if (path.empty())
    throw UserError({.operation = "embed.tls",
                     .what = "TLS lacks " + what,
                     .expected = "certificate, key and authority",
                     .fix = "give all three files, or none"});
  return read_file(path, {.operation = "embed.tls", .fix = "name a file in PEM"}, 1 << 20);
}

bool is_local(const std::string& address) {
  return address.starts_with("unix:") || address.starts_with("127.") ||
         address.starts_with("localhost:") || address.starts_with("[::1]");
}

void require_tls_beyond_machine(const std::string& address, const TlsFiles& tls) {
  if (tls.on() || is_local(address)) return;
  throw UserError({.operation = "embed.tls",
                   .where = address,
                   .what = "rows don't leave the machine without TLS",
                   .expected = "certificate, key and authority, or a local address",
                   .got = "none",
                   .fix = "name the three files in STRATA_TLS_CERTIFICATE, STRATA_TLS_KEY and "
                          "STRATA_TLS_AUTHORITY, or use 127.0.0.1:PORT or unix:PATH"});
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const TlsFiles& tls) {
  quieten();
  require_tls_beyond_machine(address, tls);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kLargestMessage);
  arguments.SetMaxSendMessageSize(kLargestMessage);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  // A channel of its own for each rank: connections are not shared behind our back.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (tls.on()) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = read_pem(tls.authority, "an authority");
    options.pem_private_key = read_pem(tls.key, "a key");
    options.pem_cert_chain = read_pem(tls.certificate, "a certificate");
    credentials = grpc::SslCredentials(options);
  }
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

// In gRPC's words there is no more than a text to tell a refused certificate by.
[[noreturn]] void refuse_status(const std::string& address, const grpc::Status& status,
                                const TlsFiles& tls) {
  const std::string& text = status.error_message();
  // That of TCP ends where nobody listens.
  const bool connected = text.find("tcp handshake") == std::string::npos;
  const bool handshake = (connected && text.find("andshake") != std::string::npos) ||
                         text.find("CERTIFICATE") != std::string::npos ||
                         text.find("Peer name") != std::string::npos;
  // A server with TLS closes a connection without; one without sends no certificate.
  if (handshake || status.error_code() == grpc::StatusCode::UNAUTHENTICATED)
    throw UserError({.operation = "embed.tls",
                     .where = address,
                     .what = "server and trainer don't accept each other's certificates",
                     .expected = "certificates of the authority that the other side was given",
                     .got = text,
                     .fix = tls.on() ? "give both sides certificates of one authority"
                                     : "give certificate, key and authority"});
  throw SystemError({.operation = "embed.connect",
                     .where = address,
                     .what = "the server of rows cannot be reached: " + text,
                     .fix = "start strata embed-server there"});
}

WireFrame to_frame(const std::string& data) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data));
  return {bytes.begin(), bytes.end()};
}

template <typename Stream, typename Message>
bool write_frame(Stream& stream, Message& message, const WireFrame& frame) {
  message.set_data(frame.data(), frame.size());
  return stream.Write(message);
}

// Either side of a stream. Context: ClientContext or ServerContext.
template <typename Stream, typename Context>
class GrpcStream : public FrameStream {
 public:
  GrpcStream(Stream& stream, Context& context) : stream_(stream), context_(context) {}
  bool send(const WireFrame& frame) override {
    if constexpr (requires { stream_.Write(out_); }) return write_frame(stream_, out_, frame);
    return false;
  }
  bool receive(WireFrame& frame) override {
    if constexpr (requires { stream_.Read(&in_); }) {
      if (!stream_.Read(&in_)) return false;
      frame = to_frame(in_.data());
      return true;
    }
    return false;
  }
  void cancel() override {
    cancelled_ = true;
    context_.TryCancel();
  }
  bool alive() override {
    if constexpr (requires { context_.IsCancelled(); }) return !context_.IsCancelled();
    return !cancelled_;
  }

 private:
  Stream& stream_;
  Context& context_;
  proto::Frame in_, out_;
  std::atomic<bool> cancelled_ = false;
};

// A client's stream and all that it needs.
template <typename Stream>
class ClientStream : public FrameStream {
 public:
  ClientStream(const std::string& address, const TlsFiles& tls,
               std::shared_ptr<grpc::Channel> channel, const auto& open)
      : channel_(std::move(channel)), stub_(proto::Rows::NewStub(channel_)) {
    stream_ = open(*stub_, context_);
    stream_->WaitForInitialMetadata();
    if (!context_.GetServerInitialMetadata().contains(kGreeting)) {
      context_.TryCancel();
      refuse_status(address, stream_->Finish(), tls);
    }
    frames_ = std::make_unique<GrpcStream<Stream, grpc::ClientContext>>(*stream_, context_);
  }
  ~ClientStream() override {
    if (!frames_) return;
    context_.TryCancel();
    stream_->Finish();
  }
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  bool send(const WireFrame& frame) override { return frames_->send(frame); }
  bool receive(WireFrame& frame) override { return frames_->receive(frame); }
  void cancel() override { frames_->cancel(); }
  bool alive() override { return frames_->alive(); }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<proto::Rows::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<GrpcStream<Stream, grpc::ClientContext>> frames_;
};

// What a handler throws, as the status of its call.
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

class RowsService : public proto::Rows::Service {
 public:
  explicit RowsService(GrpcHandlers handlers) : handlers_(std::move(handlers)) {}

  grpc::Status Session(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<proto::Frame, proto::Frame>* stream) override {
    context->AddInitialMetadata(kGreeting, "1");
    stream->SendInitialMetadata();
    GrpcStream<grpc::ServerReaderWriter<proto::Frame, proto::Frame>, grpc::ServerContext> frames(
        *stream, *context);
    return status_of([&] { handlers_.session(frames); });
  }
  grpc::Status Ask(grpc::ServerContext*, const proto::Text* question,
                   proto::Text* answer) override {
    return status_of([&] { answer->set_text(handlers_.ask(question->text())); });
  }
  grpc::Status Follow(grpc::ServerContext* context, const proto::Text* question,
                      grpc::ServerWriter<proto::Frame>* stream) override {
    context->AddInitialMetadata(kGreeting, "1");
    stream->SendInitialMetadata();
    GrpcStream<grpc::ServerWriter<proto::Frame>, grpc::ServerContext> frames(*stream, *context);
    return status_of([&] { handlers_.follow(question->text(), frames); });
  }

 private:
  GrpcHandlers handlers_;
};

void throw_status(const std::string& address, const grpc::Status& status, const TlsFiles& tls) {
  if (!status.error_details().empty()) throw_error(decode_error(status.error_details()));
  refuse_status(address, status, tls);
}

}  // namespace

struct GrpcServer::Parts {
  RowsService service;
  std::string host;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

GrpcServer::GrpcServer(const std::string& listen, const TlsFiles& tls, GrpcHandlers handlers)
    : parts_(new Parts{.service = RowsService(std::move(handlers)),
                       .host = listen,
                       .port = 0,
                       .server = nullptr}) {
  quieten();
  require_tls_beyond_machine(listen, tls);
  grpc::EnableDefaultHealthCheckService(true);
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (tls.on()) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = read_pem(tls.authority, "an authority");
    options.pem_key_cert_pairs.push_back(
        {read_pem(tls.key, "a key"), read_pem(tls.certificate, "a certificate")});
    credentials = grpc::SslServerCredentials(options);
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, credentials, &parts_->port);
  builder.RegisterService(&parts_->service);
  builder.SetMaxReceiveMessageSize(kLargestMessage);
  builder.SetMaxSendMessageSize(kLargestMessage);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  parts_->server = builder.BuildAndStart();
  const bool unix_socket = listen.starts_with("unix:");
  if (!parts_->server || (!unix_socket && parts_->port == 0))
    throw UserError(
        {.operation = "embed.listen",
         .where = listen,
         .what = "the server cannot listen there",
         .expected = "HOST:PORT with a free port, or unix:PATH in a folder that is there",
         .fix = "end who has it, or choose another address"});
  if (!unix_socket) parts_->host = listen.substr(0, listen.rfind(':'));
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
  parts_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  parts_->server->Wait();
}

TlsFiles tls_from_environment() {
  return {.certificate = variable("STRATA_TLS_CERTIFICATE"),
          .key = variable("STRATA_TLS_KEY"),
          .authority = variable("STRATA_TLS_AUTHORITY")};
}

ConnectStream grpc_sessions(const std::string& address, const TlsFiles& tls) {
  const std::shared_ptr<grpc::Channel> channel = make_channel(address, tls);
  return [=]() -> std::unique_ptr<FrameStream> {
    using Stream = grpc::ClientReaderWriter<proto::Frame, proto::Frame>;
    return std::make_unique<ClientStream<Stream>>(
        address, tls, channel, [](proto::Rows::Stub& stub, grpc::ClientContext& context) {
          return stub.Session(&context);
        });
  };
}

std::unique_ptr<FrameStream> grpc_follow(const std::string& address, const TlsFiles& tls,
                                         const std::string& question) {
  using Stream = grpc::ClientReader<proto::Frame>;
  return std::make_unique<ClientStream<Stream>>(
      address, tls, make_channel(address, tls),
      [&](proto::Rows::Stub& stub, grpc::ClientContext& context) {
        proto::Text text;
        text.set_text(question);
        return stub.Follow(&context, text);
      });
}

std::string grpc_ask(const std::string& address, const TlsFiles& tls, const std::string& question,
                     double seconds) {
  const auto stub = proto::Rows::NewStub(make_channel(address, tls));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds)));
  proto::Text text, answer;
  text.set_text(question);
  const grpc::Status status = stub->Ask(&context, text, &answer);
  if (!status.ok()) throw_status(address, status, tls);
  return answer.text();
}

std::string grpc_health(const std::string& address, const TlsFiles& tls) {
  const std::shared_ptr<grpc::Channel> channel = make_channel(address, tls);
  // grpc.health.v1.Health/Check with an empty request; field 1 of its answer is the status.
  grpc::GenericStub stub(channel);
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
  if (!status.ok()) throw_status(address, status, tls);
  grpc::Slice slice;
  if (!answer.DumpToSingleSlice(&slice).ok() || slice.size() < 2) return "UNKNOWN";
  return slice.begin()[1] == 1 ? "SERVING" : "NOT_SERVING";
}

}  // namespace strata
