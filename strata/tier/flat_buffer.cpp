#include "strata/tier/flat_buffer.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "strata/base/errors.h"

namespace strata {

FlatBuffer::FlatBuffer(std::int64_t numel, at::ScalarType dtype, Device device) {
  tensor_ = at::empty({0}, device.options(dtype));
  const auto bytes = static_cast<std::size_t>(numel) * c10::elementSize(dtype);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(nullptr, tensor_.device()),
                       /*allocator=*/nullptr, /*resizable=*/false);
  tensor_.set_(storage, 0, {numel}, {1});
}

void FlatBuffer::install(at::Tensor bytes) {
  STRATA_CHECK(!present() && bytes.is_contiguous(), "tier.install");
  STRATA_CHECK_EQ(bytes.numel(), tensor_.numel(), "tier.install");
  STRATA_CHECK_EQ(bytes.scalar_type(), tensor_.scalar_type(), "tier.install");
  STRATA_CHECK_EQ(bytes.device(), tensor_.device(), "tier.install");
  bytes_ = std::move(bytes);
  // The storage owns them, too, until remove(): a peer may read a view after this rank has ended.
  tensor_.storage().set_data_ptr(c10::DataPtr(
      bytes_.data_ptr(), new at::Tensor(bytes_),
      [](void* owner) { delete static_cast<at::Tensor*>(owner); }, tensor_.device()));
}

const at::Tensor& FlatBuffer::bytes() const {
  STRATA_CHECK(present(), "tier.bytes");
  return bytes_;
}

at::Tensor FlatBuffer::remove() {
  STRATA_CHECK(present(), "tier.remove");
  tensor_.storage().set_data_ptr(c10::DataPtr(nullptr, tensor_.device()));
  return std::exchange(bytes_, at::Tensor());
}

}  // namespace strata
