/// Returns the type of a tensor's elements for kernels, which do not include torch.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/base/element.h"
#include "strata/base/errors.h"

namespace strata {

/// Errors  InternalError: neither fp32, bf16 nor fp16.
inline kernels::Element element_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return kernels::Element::kFp32;
    case at::kBFloat16:
      return kernels::Element::kBf16;
    case at::kHalf:
      return kernels::Element::kFp16;
    default:
      throw InternalError({.operation = "device.element_of",
                           .what = "a type that no kernel takes",
                           .expected = "fp32, bf16 or fp16",
                           .got = c10::toString(dtype)});
  }
}

inline kernels::Element element_of(const at::Tensor& x) { return element_of(x.scalar_type()); }

}  // namespace strata
