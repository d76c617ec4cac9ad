#include "strata/embed/wire/grpc_stream.h"

#include <grpc/support/log.h>

#include <cstdlib>
#include <memory>
#include <vector>

namespace strata::rows_over_grpc {
namespace {

// A Frame of rows.proto without protobuf's copies: its one field is the tag, the length, the bytes.
constexpr std::uint8_t kDataTag = 1 << 3 | 2;

grpc::Slice frame_head(std::size_t bytes) {
  std::uint8_t head[11] = {kDataTag};
  std::size_t size = 1;
  for (; bytes >= 0x80; bytes >>= 7) head[size++] = static_cast<std::uint8_t>(bytes | 0x80);
  head[size++] = static_cast<std::uint8_t>(bytes);
  return {head, size};
}

}  // namespace

void quieten() {
  static const bool once = [] {
    if (!std::getenv("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
    return true;
  }();
  static_cast<void>(once);
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

}  // namespace strata::rows_over_grpc
