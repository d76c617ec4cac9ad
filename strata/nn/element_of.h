/// Names the type of a tensor's elements as kernels know it.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/base/errors.h"
#include "strata/nn/kernels/kernels.h"

namespace strata {

/// Errors  InternalError: neither fp32, bf16 nor fp16.
inline kernels::Element element_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return kernels::Element::kFp32;
    case at::kBFloat16:
      return kernels::Element::kBf16;
    case at::kHalf:
      return kernels::Element::kFp16;
    default:
      STRATA_CHECK(false, "nn.element_of");
      return kernels::Element::kFp32;
  }
}

}  // namespace strata
