/// Holds a flat buffer whose bytes are installed and removed while its views stay valid.
///
/// The storage object lives as long as the buffer: install() gives it bytes, remove() takes them
/// back. Autograd leaves, their gradients and saved tensors are views of this storage.
///
/// Shapes  one dimension.
/// Errors  InternalError: bytes of another size, type or device; bytes that are installed twice; a
///         use or removal without bytes.
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
  const at::Tensor& bytes() const;  ///< owns the bytes, which live as long as a copy of this tensor
  void install(at::Tensor bytes);
  at::Tensor remove();

 private:
  at::Tensor tensor_;  // over the storage object
  at::Tensor bytes_;   // owns the bytes of the storage
};

}  // namespace strata
