/// Holds the fp32 weights that an optimizer updates: as they are, or as bf16 ones that layers compute with and
/// the 16 bits that those lack (update_kernels.h), so that no weight is kept twice.
///
/// Shapes  flat, all of the same length.
/// Errors  InternalError: tensors that don't belong together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

struct MasterWeights {
  at::Tensor weights;         ///< fp32, or bf16
  at::Tensor remainder = {};  ///< int16, beside bf16 weights

  bool split() const { return remainder.defined(); }
  std::int64_t numel() const { return weights.numel(); }
  MasterWeights narrow(std::int64_t begin, std::int64_t numel) const;  ///< a view

  at::Tensor whole() const;                   ///< fp32: a copy of split ones, else they themselves
  void assign(const at::Tensor& fp32) const;  ///< on the host
};

/// Bytes a weight that an update keeps beside those that layers compute with in a precision.
std::int64_t master_bytes(at::ScalarType precision);

}  // namespace strata
