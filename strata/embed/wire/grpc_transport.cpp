// The synchronous interface: a stream has a thread of the server while it lasts, of which there are as
// many as ranks. A stream has no deadline, since it lasts as long as a run; keepalive pings find a peer
// that is gone, and the sessions above send statuses that show one that hangs.
//
// A server greets with initial metadata, so that connecting either finds it there or says why not: a
// certificate that is not accepted must not look like a server that is away.
#include "strata/embed/wire/grpc_transport.h"

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

// Messages are megabytes: frames, windows and reads of gRPC's own sizes take a core's worth of calls. What is
// under way is bounded by the credits of the sessions above.
constexpr std::pair<const char*, int> kSizes[] = {
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20},
    {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1 << 20}, {GRPC_ARG_TCP_READ_CHUNK_SIZE, 256 << 10},
    {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20},
};
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
  for (const auto& [name, bytes] : kSizes) arguments.SetInt(name, bytes);
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

// A Frame of rows.proto without protobuf's copies: its one field is the tag, the length, the bytes.
constexpr std::uint8_t kDataTag = 1 << 3 | 2;

grpc::Slice frame_head(std::size_t bytes) {
  std::uint8_t head[11] = {kDataTag};
  std::size_t size = 1;
  for (; bytes >= 0x80; bytes >>= 7) head[size++] = static_cast<std::uint8_t>(bytes | 0x80);
  head[size++] = static_cast<std::uint8_t>(bytes);
  return {head, size};
}

grpc::ByteBuffer to_buffer(const WireFrame& frame) {
  const grpc::Slice slices[] = {frame_head(frame.size()), grpc::Slice(frame.data(), frame.size())};
  return {slices, 2};
}

// The fields are not copied: gRPC lets go of them when the socket has taken them.
grpc::ByteBuffer to_buffer(const FramePieces& pieces) {
  using Fields = std::shared_ptr<const std::vector<std::byte>>;
  constexpr auto let_go = [](void* fields) { delete static_cast<Fields*>(fields); };
  auto* const fields = new Fields(pieces.fields);
  const grpc::Slice slices[] = {
      frame_head(pieces.size()), grpc::Slice(pieces.head.data(), pieces.head.size()),
      grpc::Slice(const_cast<std::byte*>((*fields)->data()), (*fields)->size(), let_go, fields),
      grpc::Slice(pieces.checksum.data(), pieces.checksum.size())};
  return {slices, 4};
}

// False: not one field that is all of it.
bool to_frame(const grpc::ByteBuffer& buffer, WireFrame& frame) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  std::uint64_t length = 0;
  int head = 0;  // bytes of it that were read; -1: all
  int shift = 0;
  frame.clear();
  for (const grpc::Slice& slice : slices) {
    const std::uint8_t* at = slice.begin();
    for (; head >= 0 && at != slice.end(); ++at) {
      if (head++ == 0) {
        if (*at != kDataTag) return false;
        continue;
      }
      if (shift > 56) return false;
      length |= std::uint64_t{*at & 0x7fu} << shift;
      shift += 7;
      if (*at >= 0x80) continue;
      if (length > kLargestMessage || length > buffer.Length()) return false;
      frame.reserve(static_cast<std::size_t>(length));
      head = -1;
    }
    const auto* const bytes = reinterpret_cast<const std::byte*>(at);
    frame.insert(frame.end(), bytes, bytes + (slice.end() - at));
  }
  return head == 0 || (head < 0 && frame.size() == length);  // 0: no byte is an empty field
}

// Either side of a stream. Context: ClientContext or ServerContext.
template <typename Stream, typename Context>
class GrpcStream : public FrameStream {
 public:
  GrpcStream(Stream& stream, Context& context) : stream_(stream), context_(context) {}
  bool send(const WireFrame& frame) override { return write(frame); }
  bool send_pieces(const FramePieces& pieces) override { return write(pieces); }
  bool receive(WireFrame& frame) override {
    if constexpr (requires(grpc::ByteBuffer& in) { stream_.Read(&in); }) {
      grpc::ByteBuffer in;
      return stream_.Read(&in) && to_frame(in, frame);
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
  bool write(const auto& frame) {
    if constexpr (requires(grpc::ByteBuffer& out) { stream_.Write(out); })
      return stream_.Write(to_buffer(frame));
    return false;
  }

  Stream& stream_;
  Context& context_;
  std::atomic<bool> cancelled_ = false;
};

// A client's stream and all that it needs.
template <typename Stream>
class ClientStream : public FrameStream {
 public:
  ClientStream(const std::string& address, const TlsFiles& tls,
               std::shared_ptr<grpc::Channel> channel, const auto& open)
      : channel_(std::move(channel)) {
    stream_ = open(*channel_, context_);
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
  bool send_pieces(const FramePieces& pieces) override { return frames_->send_pieces(pieces); }
  bool receive(WireFrame& frame) override { return frames_->receive(frame); }
  void cancel() override { frames_->cancel(); }
  bool alive() override { return frames_->alive(); }

 private:
  std::shared_ptr<grpc::Channel> channel_;
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

constexpr const char* kSession = "/strata.embed.v1.Rows/Session";
constexpr const char* kAsk = "/strata.embed.v1.Rows/Ask";
constexpr const char* kFollow = "/strata.embed.v1.Rows/Follow";

using ServerSession = grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
using ServerFollow = grpc::ServerWriter<grpc::ByteBuffer>;
using ClientSession = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
using ClientFollow = grpc::ClientReader<grpc::ByteBuffer>;

// As the generated service, whose frames would be messages of protobuf: these are bytes as they come.
class RowsService : public grpc::Service {
 public:
  explicit RowsService(GrpcHandlers handlers) : handlers_(std::move(handlers)) {
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
        kAsk, RpcMethod::NORMAL_RPC,
        new grpc::internal::RpcMethodHandler<RowsService, proto::Text, proto::Text>(
            [](RowsService* self, grpc::ServerContext*, const proto::Text* question,
               proto::Text* answer) {
              return status_of([&] { answer->set_text(self->handlers_.ask(question->text())); });
            },
            this)));
    AddMethod(new RpcServiceMethod(
        kFollow, RpcMethod::SERVER_STREAMING,
        new grpc::internal::ServerStreamingHandler<RowsService, proto::Text, grpc::ByteBuffer>(
            [](RowsService* self, grpc::ServerContext* context, const proto::Text* question,
               ServerFollow* stream) { return self->follow(*context, question->text(), *stream); },
            this)));
  }

 private:
  grpc::Status session(grpc::ServerContext& context, ServerSession& stream) {
    context.AddInitialMetadata(kGreeting, "1");
    stream.SendInitialMetadata();
    GrpcStream<ServerSession, grpc::ServerContext> frames(stream, context);
    return status_of([&] { handlers_.session(frames); });
  }
  grpc::Status follow(grpc::ServerContext& context, const std::string& question,
                      ServerFollow& stream) {
    context.AddInitialMetadata(kGreeting, "1");
    stream.SendInitialMetadata();
    GrpcStream<ServerFollow, grpc::ServerContext> frames(stream, context);
    return status_of([&] { handlers_.follow(question, frames); });
  }

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
  for (const auto& [name, bytes] : kSizes) builder.AddChannelArgument(name, bytes);
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
    return std::make_unique<ClientStream<ClientSession>>(
        address, tls, channel, [](grpc::Channel& to, grpc::ClientContext& context) {
          const grpc::internal::RpcMethod method(kSession,
                                                 grpc::internal::RpcMethod::BIDI_STREAMING);
          return std::unique_ptr<ClientSession>(
              grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
                  &to, method, &context));
        });
  };
}

std::unique_ptr<FrameStream> grpc_follow(const std::string& address, const TlsFiles& tls,
                                         const std::string& question) {
  return std::make_unique<ClientStream<ClientFollow>>(
      address, tls, make_channel(address, tls),
      [&](grpc::Channel& to, grpc::ClientContext& context) {
        proto::Text text;
        text.set_text(question);
        const grpc::internal::RpcMethod method(kFollow,
                                               grpc::internal::RpcMethod::SERVER_STREAMING);
        return std::unique_ptr<ClientFollow>(
            grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(&to, method, &context,
                                                                          text));
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
