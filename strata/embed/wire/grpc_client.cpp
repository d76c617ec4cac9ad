// A stream has no deadline, since it lasts as long as a run; keepalive pings find a peer that is gone, and the
// sessions above send statuses that show one that hangs.
#include "strata/embed/wire/grpc_client.h"

#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <utility>

#include "strata/base/errors.h"
#include "strata/embed/wire/grpc_stream.h"

namespace strata {
namespace {

using namespace rows_over_grpc;
using ClientSession = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
using ClientFollow = grpc::ClientReader<grpc::ByteBuffer>;

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
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);  // a server that is slow
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  for (const auto& [name, bytes] : kSizes) arguments.SetInt(name, bytes);
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
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

// In gRPC's words there is no more than a text to tell a refused certificate by.
[[noreturn]] void refuse_status(const std::string& address, const grpc::Status& status,
                                const TlsFiles& tls) {
  const std::string& text = status.error_message();
  // Other words tell of handshakes that a slow server or none has left unanswered.
  const bool handshake = text.find("Ssl handshake failed") != std::string::npos ||
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

void throw_status(const std::string& address, const grpc::Status& status, const TlsFiles& tls) {
  if (!status.error_details().empty()) throw_error(decode_error(status.error_details()));
  refuse_status(address, status, tls);
}

}  // namespace

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
