/// Computes interactions of feature vectors on one kind of device.
///
/// Shapes   fp32, contiguous; vectors of `width` elements: first [B, width] or undefined, rest
///          [B, n width].
/// Threads  const, callable from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

class InteractionPrimitives {
 public:
  virtual ~InteractionPrimitives() = default;

  /// [first | x_i . x_j for j < i], rows in ascending i, then j.
  virtual at::Tensor pairwise_dots(const at::Tensor& first, const at::Tensor& rest,
                                   std::int64_t width) const = 0;
  /// Writes the gradients dfirst and drest.
  virtual void pairwise_dots_gradient(const at::Tensor& first, const at::Tensor& rest,
                                      std::int64_t width, const at::Tensor& dy,
                                      const at::Tensor& dfirst, const at::Tensor& drest) const = 0;
};

}  // namespace strata
