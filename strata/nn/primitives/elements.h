/// Computes element by element on one kind of device: activations, sums, dropout.
///
/// Shapes   contiguous; fp32, bf16 or fp16. Each result is computed in fp32 and rounded once.
/// Threads  const, callable from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/nn/kernels/kernels.h"
#include "strata/nn/primitives/activation.h"

namespace strata {

struct StepScalars;

/// Which elements dropout keeps: a rank has part `part` of each sample.
struct MaskOfSamples {
  kernels::DropoutMask mask;
  std::int64_t first_sample;
  std::int64_t part;
  /// In the device's memory: the mask's key is the run's, and the device mixes the step into it.
  /// Null: the key already contains the step.
  const StepScalars* scalars = nullptr;
};

class ElementPrimitives {
 public:
  virtual ~ElementPrimitives() = default;

  virtual at::Tensor activate(Activation kind, const at::Tensor& x) const = 0;
  /// The gradient at x. May overwrite dy; `again`, unless it is null, becomes activate(x).
  virtual at::Tensor activation_gradient(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                         at::Tensor* again) const = 0;
  virtual at::Tensor add(const at::Tensor& a, const at::Tensor& b) const = 0;
  /// x [..., C] += bias [C]
  virtual void add_bias(const at::Tensor& x, const at::Tensor& bias) const = 0;
  /// residual + mask * x; without a residual mask * x.
  virtual at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x,
                                 const MaskOfSamples& mask) const = 0;
  /// a * b + c, elementwise; without c a * b.
  virtual at::Tensor multiply_add(const at::Tensor& a, const at::Tensor& b,
                                  const at::Tensor& c) const = 0;
};

}  // namespace strata
