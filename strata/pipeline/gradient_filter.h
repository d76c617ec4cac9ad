/// Changes a rank's gradients after their reduction and before the norm and the update.
///
/// The stage machine calls it once a step; the caller of the trainer supplies it (TrainerOptions).
/// A recording leaves the call to the host, so an implementation may keep tensors from step to
/// step.
///
/// Threads  the rank's.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace strata {

class GradientFilter {
 public:
  virtual ~GradientFilter() = default;

  /// Called when a step begins: whether filter() will leave gradients to update with. If not, the
  /// step changes no weight.
  virtual bool has_gradients() const = 0;
  /// `gradients`: of the shards of this rank's layers, in layer order. Changes them in place.
  virtual void filter(std::span<const at::Tensor> gradients) = 0;
};

}  // namespace strata
