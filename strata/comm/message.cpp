#include "strata/comm/message.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <cstring>
#include <type_traits>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/transport/transport.h"

namespace strata {
namespace {

static_assert(std::is_trivially_copyable_v<Frame> && sizeof(Frame) <= kMessageHeaderBytes);

void describe_tensor(Frame& frame, at::Tensor& tensor) {
  if (!tensor.is_cpu()) {
    throw InternalError({.operation = "comm.send",
                         .what = "a device's address would be sent to another process",
                         .expected = "a tensor in host memory",
                         .got = tensor.device().str(),
                         .fix = ""});
  }
  if (!tensor.is_non_overlapping_and_dense()) tensor = tensor.contiguous();
  STRATA_CHECK(tensor.dim() <= Frame::kDims, "comm.send");
  frame.has_tensor = true;
  frame.dtype = static_cast<std::int8_t>(tensor.scalar_type());
  frame.dims = static_cast<std::int16_t>(tensor.dim());
  for (int i = 0; i < frame.dims; ++i) {
    frame.sizes[i] = tensor.size(i);
    frame.strides[i] = tensor.stride(i);
  }
  frame.tensor_bytes = tensor.nbytes();
}

void put_inside(Frame& frame, const Message& message) {
  if (frame.numbers > 0)
    std::memcpy(frame.inside, message.numbers.data(), frame.numbers * sizeof(double));
  if (frame.tensor_bytes > 0)
    std::memcpy(frame.inside, message.tensor.const_data_ptr(), frame.tensor_bytes);
}

}  // namespace

at::Tensor byte_tensor(std::span<const std::byte> bytes) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, host_options(at::kByte));
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

at::Tensor byte_tensor(std::string_view text) {
  return byte_tensor(std::as_bytes(std::span(text)));
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

Frame frame_of(const Address& address, Message& message) {
  Frame frame;
  frame.kind = FrameKind::kMessage;
  frame.address = address;
  frame.numbers = message.numbers.size();
  frame.of_device = message.of_device;
  STRATA_CHECK(message.ready.ready() && !message.open_export, "comm.send");
  STRATA_CHECK(!message.tensor.defined() || message.numbers.empty(), "comm.send");
  if (message.tensor.defined()) describe_tensor(frame, message.tensor);
  if (frame.fits()) put_inside(frame, message);
  return frame;
}

void become_export(Frame& frame, const at::Tensor& tensor, std::uint64_t number) {
  frame.kind = FrameKind::kExport;
  frame.exported = number;
  frame.memory = reinterpret_cast<std::uint64_t>(tensor.const_data_ptr());
}

Frame frame_of(FrameKind kind, std::span<const std::byte> bytes, Message& message) {
  message.tensor = byte_tensor(bytes);
  Frame frame = frame_of(Address{}, message);
  frame.kind = kind;
  return frame;
}

Message message_of(const Frame& frame) {
  Message message;
  message.of_device = frame.of_device;
  message.numbers.resize(frame.numbers);
  if (frame.has_tensor) {
    message.tensor = at::empty_strided({frame.sizes, static_cast<std::size_t>(frame.dims)},
                                       {frame.strides, static_cast<std::size_t>(frame.dims)},
                                       host_options(static_cast<at::ScalarType>(frame.dtype)));
    STRATA_CHECK_EQ(message.tensor.nbytes(), frame.tensor_bytes, "comm.receive");
  }
  if (!frame.fits()) return message;
  if (frame.numbers > 0)
    std::memcpy(message.numbers.data(), frame.inside, frame.numbers * sizeof(double));
  if (frame.tensor_bytes > 0)
    std::memcpy(message.tensor.data_ptr(), frame.inside, frame.tensor_bytes);
  return message;
}

}  // namespace strata
