/// Hands tensors to kernels: the type of their elements and pointers into them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "strata/nn/kernels/element.h"

namespace strata {

/// Errors  InternalError: neither fp32, bf16 nor fp16.
kernels::Element element_of(const at::Tensor& x);

inline const void* at_element(const at::Tensor& x, std::int64_t index) {
  return static_cast<const std::byte*>(x.const_data_ptr()) +
         index * static_cast<std::int64_t>(x.element_size());
}

inline void* mutable_at_element(const at::Tensor& x, std::int64_t index) {
  return static_cast<std::byte*>(x.data_ptr()) +
         index * static_cast<std::int64_t>(x.element_size());
}

/// x in fp32; itself if it is.
at::Tensor widened(const at::Tensor& x);

}  // namespace strata
