/// Sets up what computation by ATen has in common: operators that bypass autograd as kernels do,
/// temporaries that no account is charged for, and the numbers of a step as tensors.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>

#include "strata/device/account.h"
#include "strata/device/step_scalars.h"

namespace strata {

/// A primitive allocates its results, then opens this.
struct AtenScope {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const UnchargedScope temporaries;
};

/// x in fp32; itself if it is.
inline at::Tensor as_float(const at::Tensor& x) { return x.to(at::kFloat); }

/// Fields of a step's numbers as tensors without dimensions, on their memory: the host reads nothing.
/// The numbers outlive them.
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

}  // namespace strata
