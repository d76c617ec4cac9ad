// Defines what client and server share: sizes, names, and streams of frames as bytes.
//
// A message of gRPC has at most kLargestMessage bytes, which bounds the server's memory; a longer
// frame travels in several messages. The first frame of a session is short and travels in the
// metadata of the call; the server reads nothing of a session without one.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <utility>
#include <vector>

#include "strata/rowserver/wire/frame_stream.h"

namespace strata::rows_over_grpc {

inline constexpr std::size_t kLargestPart = std::size_t{4} << 20;  // of a frame in one message
inline constexpr int kLargestMessage = static_cast<int>(kLargestPart) + 64;
inline constexpr std::size_t kLargestFrame = std::size_t{1} << 30;
inline constexpr int kLargestMetadata = 64 << 10;
inline constexpr std::size_t kLargestFirstFrame = std::size_t{48} << 10;

// Messages have megabytes; with gRPC's default sizes of frames, windows and reads the system calls
// take a whole core. The credits of sessions bound the bytes in flight.
inline constexpr std::pair<const char*, int> kSizes[] = {
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20},
    {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1 << 20}, {GRPC_ARG_TCP_READ_CHUNK_SIZE, 256 << 10},
    {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20},
};

// Metadata of every answer: identifies a server of rows and its version.
inline constexpr const char* kGreeting = "strata-rows";
inline constexpr const char* kGreetingVersion = "3";
inline constexpr const char* kFirstFrame =
    "strata-first-frame-bin";  // metadata of a session's call

inline constexpr const char* kSession = "/strata.embed.v1.Rows/Session";
inline constexpr const char* kFollow = "/strata.embed.v1.Rows/Follow";

/// Silences gRPC's log, which would repeat at every attempt what our errors report.
void quieten();

std::vector<grpc::ByteBuffer> to_messages(const WireFrame& frame);
std::vector<grpc::ByteBuffer> to_messages(const FramePieces& pieces);

/// Assembles a frame from its messages.
class FrameAssembly {
 public:
  explicit FrameAssembly(WireFrame& frame) : frame_(frame) { frame_.clear(); }
  bool add(const grpc::ByteBuffer& message);  ///< false: the message is not part of this frame
  bool complete() const { return began_ && frame_.size() == total_; }

 private:
  WireFrame& frame_;
  std::uint64_t total_ = 0;
  bool began_ = false;
};

// One side of a stream. Context: ClientContext or ServerContext.
template <typename Stream, typename Context>
class GrpcStream : public FrameStream {
 public:
  GrpcStream(Stream& stream, Context& context) : stream_(stream), context_(context) {}
  bool send(const WireFrame& frame) override { return write(frame); }
  bool send_pieces(const FramePieces& pieces) override { return write(pieces); }
  bool receive(WireFrame& frame) override {
    if constexpr (requires(grpc::ByteBuffer& in) { stream_.Read(&in); }) {
      FrameAssembly assembly(frame);
      while (!assembly.complete()) {
        grpc::ByteBuffer in;
        if (!stream_.Read(&in) || !assembly.add(in)) return false;
      }
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
  bool write(const auto& frame) {
    if constexpr (requires(grpc::ByteBuffer& out) { stream_.Write(out); }) {
      for (const grpc::ByteBuffer& message : to_messages(frame))
        if (!stream_.Write(message)) return false;
      return true;
    }
    return false;
  }

  Stream& stream_;
  Context& context_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace strata::rows_over_grpc
