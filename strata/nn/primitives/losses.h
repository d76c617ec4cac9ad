/// Computes losses and their gradients at the logits on one kind of device.
///
/// With StepScalars, in the device's memory, a gradient's scale is their
/// loss_scale * inverse_valid_tokens instead of the number that the caller passes.
///
/// Threads  const, callable from any thread; a group's ranks call it together.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/nn/kernels/kernels.h"

namespace strata {

class TensorParallel;
struct StepScalars;

class LossPrimitives {
 public:
  virtual ~LossPrimitives() = default;

  /// Adds the sum of the rows' losses, in a fixed order (on a host the rows'), to `loss` [1] fp64;
  /// logits, as ProductPrimitives::logits() computes them, become their gradient if `gradient`.
  /// Targets [rows] int64. The group's ranks add up their rows' maxima and sums.
  virtual void add_loss(const at::Tensor& loss, at::Tensor& logits, const at::Tensor& targets,
                        const kernels::CrossEntropy& what, const TensorParallel* group,
                        bool gradient, const StepScalars* scalars) const = 0;
  /// For logits [B] and labels [B], fp32, a label in [0, 1], or below 0 if it doesn't count: adds
  /// the sum of the binary cross-entropies, computed in fp64 and in a fixed order, to `loss` [1]
  /// fp64. Writes `scale` times its gradient at the logits if `gradient` is defined.
  virtual void add_logistic_loss(const at::Tensor& loss, const at::Tensor& logits,
                                 const at::Tensor& labels, double scale, const at::Tensor& gradient,
                                 const StepScalars* scalars) const = 0;
};

}  // namespace strata
