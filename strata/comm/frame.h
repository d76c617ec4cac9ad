/// Lays a message out in bytes: a header of one size, with what is small inside, then the rest.
///
/// Shapes  dense tensors of any strides travel as they lie in memory and keep their strides, so
///         that kernels choose the same way as with the tensor of another thread; others are made
///         contiguous. At most 8 dims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "strata/comm/message.h"

namespace strata {

enum class FrameKind : std::uint32_t {
  kMessage,   // a tensor or numbers
  kExport,    // says where a tensor is, to be read there
  kRelease,   // it was read
  kFailure,   // ends the run
  kStatus,    // what the ranks are doing
  kShutdown,  // the last
};

struct Frame {
  static constexpr int kDims = 8;
  static constexpr std::size_t kInside = 768;

  FrameKind kind = FrameKind::kShutdown;
  std::int8_t dtype = 0;
  bool has_tensor = false;
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

/// The header of a message. `message.tensor` becomes the dense tensor whose bytes are to be sent.
Frame frame_of(const Address& address, Message& message);

/// Makes of a message's frame one that only says where the tensor is.
void become_export(Frame& frame, const at::Tensor& tensor, std::uint64_t number);

/// A frame that carries text or plain structs instead, kept in a byte tensor.
Frame frame_of(FrameKind kind, std::span<const std::byte> bytes, Message& message);

/// Makes the message that the frame announces; the bytes are still to be filled in if they do not
/// fit in the frame. New tensors are charged to this thread's account.
Message message_of(const Frame& frame);

}  // namespace strata
