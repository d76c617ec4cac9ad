/// Multiplies by cuBLASLt directly: an algorithm is chosen once a shape and kept, so that a product's bits depend
/// neither on where its operands lie nor on what ran before; gradients of 16-bit operands are added to fp32
/// inside the product.
///
/// Operators multiply by ATen (aten_libraries_cuda.cpp) until this has run on a GPU; its test there
/// (lt_products_test.cpp) says when.
///
/// Shapes   as in primitives.h; rows may have gaps, elements of a row may not.
/// Threads  callable from any thread; the tensors' device is the calling thread's.
/// Cost     a workspace of 32 MiB while the product is enqueued; the first product of a shape asks cuBLASLt.
/// Errors   InternalError: cuBLASLt refused, or has no algorithm for the shape.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

class LtProducts {
 public:
  virtual ~LtProducts() = default;
  /// x weightᵀ, plus the bias [out] if it is defined, in the type of x.
  virtual at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             void* stream) const = 0;
  /// dx = dy weight
  virtual void input_gradient(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& weight,
                              void* stream) const = 0;
  /// sum += dyᵀ x; sum fp32.
  virtual void add_weight_gradient(at::Tensor& sum, const at::Tensor& dy, const at::Tensor& x,
                                   void* stream) const = 0;
};

/// Null: built without cuBLASLt's headers.
const LtProducts* lt_products();

}  // namespace strata
