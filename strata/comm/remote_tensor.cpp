#include "strata/comm/remote_tensor.h"

#include <ATen/ops/empty_strided.h>

#include <utility>

#include "strata/base/errors.h"
#include "strata/comm/neighbours.h"

namespace strata {

RemoteTensor::RemoteTensor(const Frame& frame, Owner owner)
    : sizes_(frame.sizes, frame.sizes + frame.dims),
      strides_(frame.strides, frame.strides + frame.dims),
      dtype_(static_cast<at::ScalarType>(frame.dtype)),
      numel_(static_cast<std::int64_t>(frame.tensor_bytes / c10::elementSize(dtype_))),
      memory_(frame.memory),
      owner_(std::move(owner)) {}

void RemoteTensor::read(std::int64_t first, std::int64_t count, void* to) const {
  STRATA_CHECK(first >= 0 && count >= 0 && first + count <= numel_, "comm.read");
  const std::size_t element = c10::elementSize(dtype_);
  owner_.check(read_memory(owner_.process, memory_ + static_cast<std::uint64_t>(first) * element,
                           static_cast<std::size_t>(count) * element, to));
}

at::Tensor RemoteTensor::copy() const {
  at::Tensor tensor = at::empty_strided(sizes_, strides_, dtype_);
  read(0, numel_, tensor.data_ptr());
  return tensor;
}

}  // namespace strata
