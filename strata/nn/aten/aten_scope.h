/// Sets up computation by ATen: operators bypass autograd, temporaries are not charged, and a
/// step's scalars are available as tensors.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <cstdint>

#include "strata/device/account.h"
#include "strata/device/step_scalars.h"

namespace strata {

/// Open it after a primitive has allocated its results.
struct AtenScope {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const UnchargedScope temporaries;
};

/// Returns x in fp32; x itself if it is fp32.
inline at::Tensor as_float(const at::Tensor& x) { return x.to(at::kFloat); }

/// Returns fields of a step's scalars as tensors without dimensions on the same memory, which the
/// host does not read. The scalars outlive the tensors.
class StepTensors {
 public:
  StepTensors(const StepScalars& scalars, c10::Device device)
      : scalars_(const_cast<StepScalars&>(scalars)), device_(device) {}

  at::Tensor operator()(double StepScalars::* field) const {
    return on_memory(&(scalars_.*field), at::kDouble);
  }
  at::Tensor operator()(std::int64_t StepScalars::* field) const {
    return on_memory(&(scalars_.*field), at::kLong);
  }

 private:
  at::Tensor on_memory(void* field, at::ScalarType dtype) const {
    return at::for_blob(field, at::IntArrayRef())
        .options(c10::TensorOptions().dtype(dtype).device(device_))
        .target_device(device_)
        .make_tensor();
  }

  StepScalars& scalars_;
  c10::Device device_;
};

/// The factor on gradients, fp64 without dimensions: `scale`, or that of the step in which a
/// recorded kernel runs.
inline at::Tensor gradient_scale(double scale, const StepScalars* scalars, const at::Tensor& like) {
  if (!scalars) return at::full({}, scale, like.options().dtype(at::kDouble));
  const StepTensors step(*scalars, like.device());
  return step(&StepScalars::loss_scale) * step(&StepScalars::inverse_valid_tokens);
}

}  // namespace strata
