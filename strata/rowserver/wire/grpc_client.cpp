// A stream has no deadline, because it lasts as long as a run. Keepalive pings detect a peer that
// has gone, and the statuses of sessions show one that hangs.
#include "strata/rowserver/wire/grpc_client.h"

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "rows.grpc.pb.h"
#include "strata/base/errors.h"
#include "strata/rowserver/wire/grpc_answers.h"
#include "strata/rowserver/wire/grpc_peer.h"
#include "strata/rowserver/wire/grpc_stream.h"

namespace strata {
namespace {

using namespace rows_over_grpc;
using ClientSession = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
using ClientFollow = grpc::ClientReader<grpc::ByteBuffer>;

// A client's stream with its channel and context.
template <typename Stream>
class ClientStream : public FrameStream {
 public:
  ClientStream(const Peer& peer, std::shared_ptr<grpc::ClientContext> context, const auto& open)
      : channel_(peer.channel), context_(std::move(context)), stream_(open(*channel_, *context_)) {
    stream_->WaitForInitialMetadata();
    try {
      if (!has_greeted(peer, *context_)) refuse_stranger(peer, end());
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

// Starts the call when the first frame is sent, which travels in its metadata.
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
                                         const FollowRequest& request) {
  const Peer peer = reach(address, access);
  const auto called = std::make_shared<grpc::ClientContext>();
  prove_call(peer, *called);
  return std::make_unique<ClientStream<ClientFollow>>(
      peer, called, [&](grpc::Channel& to, grpc::ClientContext& context) {
        const grpc::internal::RpcMethod method(kFollow,
                                               grpc::internal::RpcMethod::SERVER_STREAMING);
        return std::unique_ptr<ClientFollow>(
            grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(&to, method, &context,
                                                                          message_of(request)));
      });
}

std::string grpc_health(const std::string& address, const ServerAccess& access) {
  const Peer peer = reach(address, {access.tls, "none is required"});
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
