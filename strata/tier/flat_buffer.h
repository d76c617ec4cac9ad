/// Holds a flat buffer whose bytes may come and go while its views stay valid.
///
/// The storage object lives as long as the buffer: install() puts bytes under it, remove() takes
/// them out. Autograd leaves, their gradients and saved tensors are views of it and follow.
///
/// Shapes  one dimension.
/// Errors  InternalError: bytes of another size or device, installed twice, used or removed when absent.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/device/device.h"

namespace strata {

class FlatBuffer {
 public:
  FlatBuffer() = default;
  FlatBuffer(std::int64_t numel, at::ScalarType dtype, Device device);  ///< without bytes

  const at::Tensor& tensor() const { return tensor_; }
  bool present() const { return bytes_.defined(); }
  const at::Tensor& bytes() const;  ///< what owns them: they live on for whoever holds it
  void install(at::Tensor bytes);
  at::Tensor remove();

 private:
  at::Tensor tensor_;  // over the storage object
  at::Tensor bytes_;   // owns what the storage shows
};

}  // namespace strata
