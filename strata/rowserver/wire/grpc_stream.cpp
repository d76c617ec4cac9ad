// A Frame of rows.proto without protobuf's copies: the length of a frame that goes on in the next
// messages, the tag, the length, the bytes.
#include "strata/rowserver/wire/grpc_stream.h"

#include <grpc/support/log.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace strata::rows_over_grpc {
namespace {

constexpr std::uint8_t kDataTag = 1 << 3 | 2, kTotalTag = 2 << 3 | 0;
constexpr std::size_t kLongestHead = 2 * 11;  // two tags, two numbers

std::size_t put_field(std::uint8_t* at, std::uint8_t tag, std::uint64_t number) {
  std::size_t size = 0;
  for (at[size++] = tag; number >= 0x80; number >>= 7)
    at[size++] = static_cast<std::uint8_t>(number | 0x80);
  at[size++] = static_cast<std::uint8_t>(number);
  return size;
}

grpc::Slice message_head(std::size_t bytes, std::size_t total) {
  std::uint8_t head[kLongestHead];
  std::size_t size = 0;
  if (total > bytes) size = put_field(head, kTotalTag, total);
  size += put_field(head + size, kDataTag, bytes);
  return {head, size};
}

// Bytes [begin, end) of slices that lie one after another.
std::vector<grpc::Slice> part_of(const std::vector<grpc::Slice>& slices, std::size_t begin,
                                 std::size_t end) {
  std::vector<grpc::Slice> part;
  std::size_t at = 0;
  for (const grpc::Slice& slice : slices) {
    const std::size_t from = std::clamp(begin, at, at + slice.size()) - at;
    const std::size_t to = std::clamp(end, at, at + slice.size()) - at;
    if (from < to) part.push_back(slice.sub(from, to));
    at += slice.size();
  }
  return part;
}

std::vector<grpc::ByteBuffer> to_messages(const std::vector<grpc::Slice>& slices,
                                          std::size_t total) {
  std::vector<grpc::ByteBuffer> messages;
  for (std::size_t begin = 0; messages.empty() || begin < total; begin += kLargestPart) {
    const std::size_t end = std::min(total, begin + kLargestPart);
    std::vector<grpc::Slice> part = part_of(slices, begin, end);
    part.insert(part.begin(), message_head(end - begin, begin == 0 ? total : 0));
    messages.emplace_back(part.data(), part.size());
  }
  return messages;
}

// What precedes the bytes of a message.
struct MessageHeadOfFrame {
  std::uint64_t total = 0;  // 0: not given
  std::uint64_t bytes = 0;
  std::size_t size = 0;  // of the head
};

// False: no such head.
bool read_field(const std::uint8_t*& at, const std::uint8_t* end, std::uint8_t tag,
                std::uint64_t& number) {
  if (at == end || *at != tag) return false;
  ++at;
  number = 0;
  for (int shift = 0; shift <= 56 && at != end; shift += 7) {
    number |= std::uint64_t{*at & 0x7fu} << shift;
    if (*at++ < 0x80) return true;
  }
  return false;
}

bool read_head(const std::vector<grpc::Slice>& slices, MessageHeadOfFrame& head) {
  std::uint8_t bytes[kLongestHead];
  std::size_t count = 0;
  for (const grpc::Slice& slice : slices) {
    const std::size_t some = std::min(kLongestHead - count, slice.size());
    std::copy_n(slice.begin(), some, bytes + count);
    count += some;
  }
  const std::uint8_t *at = bytes, *const end = bytes + count;
  read_field(at, end, kTotalTag, head.total);
  if (!read_field(at, end, kDataTag, head.bytes)) return false;
  head.size = static_cast<std::size_t>(at - bytes);
  return true;
}

}  // namespace

void quieten() {
  static const bool once = [] {
    if (!std::getenv("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
    return true;
  }();
  static_cast<void>(once);
}

std::vector<grpc::ByteBuffer> to_messages(const WireFrame& frame) {
  return to_messages({grpc::Slice(frame.data(), frame.size())}, frame.size());
}

// The fields are not copied: gRPC lets go of them when the socket has taken them.
std::vector<grpc::ByteBuffer> to_messages(const FramePieces& pieces) {
  using Fields = std::shared_ptr<const std::vector<std::byte>>;
  constexpr auto let_go = [](void* fields) { delete static_cast<Fields*>(fields); };
  auto* const fields = new Fields(pieces.fields);
  return to_messages(
      {grpc::Slice(pieces.head.data(), pieces.head.size()),
       grpc::Slice(const_cast<std::byte*>((*fields)->data()), (*fields)->size(), let_go, fields),
       grpc::Slice(pieces.checksum.data(), pieces.checksum.size())},
      pieces.size());
}

bool FrameAssembly::add(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  MessageHeadOfFrame head;
  if (!message.Dump(&slices).ok()) return false;
  // Nothing at all is an empty field.
  if (message.Length() > 0 && !read_head(slices, head)) return false;
  if (message.Length() != head.size + head.bytes) return false;
  if (!std::exchange(began_, true)) {
    total_ = std::max(head.total, head.bytes);
    if (total_ > kLargestFrame || (head.total > 0 && head.bytes == 0)) return false;
    frame_.reserve(static_cast<std::size_t>(total_));
  } else if (head.total > 0 || head.bytes == 0 || head.bytes > total_ - frame_.size()) {
    return false;
  }
  std::size_t skipped = head.size;
  for (const grpc::Slice& slice : slices) {
    const std::size_t skip = std::min(skipped, slice.size());
    skipped -= skip;
    const auto* const bytes = reinterpret_cast<const std::byte*>(slice.begin());
    frame_.insert(frame_.end(), bytes + skip, bytes + slice.size());
  }
  return true;
}

}  // namespace strata::rows_over_grpc
