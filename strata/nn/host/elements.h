/// Converts pieces of tensors to arguments of kernels: pointers into them, and fp32 copies.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstddef>
#include <cstdint>

#include "strata/device/element_of.h"
#include "strata/device/parallel.h"
#include "strata/nn/kernels/kernels.h"

namespace strata {

inline const void* at_element(const at::Tensor& x, std::int64_t index) {
  return static_cast<const std::byte*>(x.const_data_ptr()) +
         index * static_cast<std::int64_t>(x.element_size());
}

inline void* mutable_at_element(const at::Tensor& x, std::int64_t index) {
  return static_cast<std::byte*>(x.data_ptr()) +
         index * static_cast<std::int64_t>(x.element_size());
}

/// Returns x in fp32; x itself if it is fp32.
inline at::Tensor widened(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return x.detach();
  at::Tensor wide = at::empty(x.sizes(), x.options().dtype(at::kFloat));
  const kernels::Element element = element_of(x);
  float* to = wide.data_ptr<float>();
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::widen(element, at_element(x, begin), to + begin, end - begin);
  });
  return wide;
}

}  // namespace strata
