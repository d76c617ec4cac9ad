/// Holds the fp32 weights that an optimizer updates: whole, or split into the bf16 weights that
/// layers compute with and the 16 bits that those lack (update_kernels.h), so that no weight is
/// stored twice.
///
/// Shapes  flat, all of the same length.
/// Errors  InternalError: tensors of a wrong length, dtype or device, or not contiguous.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

struct MasterWeights {
  at::Tensor weights;         ///< fp32, or bf16
  at::Tensor remainder = {};  ///< int16, for bf16 weights

  bool split() const { return remainder.defined(); }
  std::int64_t numel() const { return weights.numel(); }
  MasterWeights narrow(std::int64_t begin, std::int64_t numel) const;  ///< a view

  /// fp32: the weights themselves, or a copy if they are split
  at::Tensor whole() const;
  void assign(const at::Tensor& fp32) const;  ///< on the host
};

/// Bytes per weight that an update keeps in addition to the layers' weights of a precision.
std::int64_t master_bytes(at::ScalarType precision);

}  // namespace strata
