/// Computes matrix products on one kind of device.
///
/// Shapes   x [rows, in], weight [out, in], dy [rows, out], contiguous; fp32, bf16 or fp16 alike;
///          sums of gradients fp32.
/// Threads  const, callable from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/nn/primitives/activation.h"

namespace strata {

class ProductPrimitives {
 public:
  virtual ~ProductPrimitives() = default;

  /// x weightᵀ, plus the bias if it is defined.
  virtual at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) const = 0;
  /// The same for LossPrimitives::add_loss(): in fp32, unrounded if that costs nothing, or in the
  /// type of x.
  virtual at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const = 0;
  /// Converts a gradient of logits to what the next two accept with operands of `dtype`: the
  /// gradient itself, or a rounded copy.
  virtual at::Tensor as_operand(const at::Tensor& gradient, at::ScalarType dtype) const = 0;
  /// dx = dy weight
  virtual void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                              const at::Tensor& weight) const = 0;
  /// sum += dyᵀ x
  virtual void add_weight_gradient(const at::Tensor& sum, const at::Tensor& dy,
                                   const at::Tensor& x) const = 0;
  /// sum += column sums of x, rows in a fixed order: on a host the ascending one.
  virtual void add_column_sums(const at::Tensor& sum, const at::Tensor& x) const = 0;

  // ---- Products that a library may fuse with the next operation; overrides fuse, defaults do not

  /// product(). A library that fuses the activation also sets `activated`: as exact as
  /// activate() of the product, but with other bits. Else `activated` stays as it is.
  virtual at::Tensor product_and_activation(Activation /*kind*/, const at::Tensor& x,
                                            const at::Tensor& weight, const at::Tensor& bias,
                                            at::Tensor& /*activated*/) const {
    return product(x, weight, bias);
  }
  /// activation_gradient() at x [rows, in] of dy weight; undefined if it is not fused.
  virtual at::Tensor fused_input_gradient(Activation /*kind*/, const at::Tensor& /*x*/,
                                          const at::Tensor& /*dy*/,
                                          const at::Tensor& /*weight*/) const {
    return {};
  }
  /// add_weight_gradient(), and add_column_sums() of dy to `bias_sum`.
  virtual void add_linear_gradients(const at::Tensor& sum, const at::Tensor& bias_sum,
                                    const at::Tensor& dy, const at::Tensor& x) const {
    add_weight_gradient(sum, dy, x);
    add_column_sums(bias_sum, dy);
  }
};

}  // namespace strata
