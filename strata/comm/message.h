/// Names and carries a message between ranks, and serializes it for another process: a header of
/// fixed size that contains small payloads, then the rest.
///
/// Shapes  dense tensors of any strides are sent as they lie in memory and keep their strides, so
///         that kernels make the same choices as with a tensor of another thread; others are made
///         contiguous. At most 8 dims.
/// Errors  InternalError: a device's tensor, more than 8 dims, bytes that are not complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/device/device.h"

namespace strata {

/// Identifies a message between two ranks of a group; a tag may be reused after the message was
/// taken.
struct MessageTag {
  std::int32_t kind = 0;
  std::int32_t value = 0;
  std::int32_t consumer = 0;
  std::int32_t micro_batch = 0;
  friend auto operator<=>(const MessageTag&, const MessageTag&) = default;
};

/// Where a message comes from and goes to.
struct Address {
  int from = 0;  ///< world ranks
  int to = 0;
  std::uint64_t group = 0;  ///< keeps the messages of different groups apart
  MessageTag tag;
  friend auto operator<=>(const Address&, const Address&) = default;
};

class RemoteBuffer;
class Export;

struct Message {
  at::Tensor tensor;            ///< undefined: numbers only, or a remote buffer
  std::vector<double> numbers;  ///< not charged to an account; only without a tensor
  std::shared_ptr<const RemoteBuffer> remote = nullptr;  ///< still in a same-host peer's memory
  Completion ready = {};  ///< the event after which the tensor's bytes are complete
  /// the bytes stay the sender's; ended when they are read
  std::shared_ptr<Export> open_export = nullptr;
  /// the bytes are a copy of a device's and are copied to a device again
  bool of_device = false;
};

/// A flat tensor of bytes, and a text that travelled in one.
at::Tensor byte_tensor(std::span<const std::byte> bytes);
at::Tensor byte_tensor(std::string_view text);
std::string text_of(const at::Tensor& bytes);

enum class FrameKind : std::uint32_t {
  kMessage,   // a tensor or numbers
  kExport,    // says where a tensor is, to be read there
  kRelease,   // it was read
  kFailure,   // ends the run
  kStatus,    // progress of the ranks
  kShutdown,  // the last
};

/// The header that travels in front of a message's bytes.
struct Frame {
  static constexpr int kDims = 8;
  static constexpr std::size_t kInside = 768;

  FrameKind kind = FrameKind::kShutdown;
  std::int8_t dtype = 0;
  bool has_tensor = false;
  bool of_device = false;  ///< as Message::of_device
  std::int16_t dims = 0;
  Address address;
  std::int64_t sizes[kDims] = {};
  std::int64_t strides[kDims] = {};
  std::uint64_t numbers = 0;  ///< doubles, instead of a tensor
  std::uint64_t tensor_bytes = 0;
  std::uint64_t exported = 0;          ///< number of an exported buffer, until its release
  std::uint64_t memory = 0;            ///< its address; its bytes don't travel
  unsigned char inside[kInside] = {};  ///< numbers or tensor, if they fit

  std::uint64_t bytes() const {
    return kind == FrameKind::kExport ? 0 : numbers * sizeof(double) + tensor_bytes;
  }
  bool fits() const { return bytes() <= kInside; }
};

/// The header of a message. `message.tensor` becomes the dense tensor whose bytes are to be sent;
/// they must be complete in host memory, because the sender knows neither devices nor events.
Frame frame_of(const Address& address, Message& message);

/// Turns a message's frame into one that only names the tensor's address.
void become_export(Frame& frame, const at::Tensor& tensor, std::uint64_t number);

/// A frame that carries text or plain structs instead, kept in a byte tensor.
Frame frame_of(FrameKind kind, std::span<const std::byte> bytes, Message& message);

/// Makes the message that the frame announces; the bytes are still to be filled in if they do not
/// fit in the frame. New tensors are charged to this thread's account.
Message message_of(const Frame& frame);

}  // namespace strata
