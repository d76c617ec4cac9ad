// What client and server of rows share of gRPC: sizes, names, and streams of frames as bytes.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <utility>

#include "rows.grpc.pb.h"
#include "strata/embed/wire/frame_stream.h"

namespace strata::rows_over_grpc {

namespace proto = embed::v1;
inline constexpr int kLargestMessage = 1 << 30;

// Messages are megabytes: frames, windows and reads of gRPC's own sizes take a core's worth of calls. What is
// under way is bounded by the credits of the sessions above.
inline constexpr std::pair<const char*, int> kSizes[] = {
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20},
    {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1 << 20}, {GRPC_ARG_TCP_READ_CHUNK_SIZE, 256 << 10},
    {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20},
};
inline constexpr const char* kGreeting = "strata-rows";

inline constexpr const char* kSession = "/strata.embed.v1.Rows/Session";
inline constexpr const char* kAsk = "/strata.embed.v1.Rows/Ask";
inline constexpr const char* kFollow = "/strata.embed.v1.Rows/Follow";

/// What goes wrong is in our errors; gRPC's own log would repeat it at every try.
void quieten();

grpc::ByteBuffer to_buffer(const WireFrame& frame);
grpc::ByteBuffer to_buffer(const FramePieces& pieces);
/// False: not one field that is all of it.
bool to_frame(const grpc::ByteBuffer& buffer, WireFrame& frame);

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

}  // namespace strata::rows_over_grpc
