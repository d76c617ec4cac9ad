/// Converts tensors to arguments of launches: pointers (null for undefined tensors), sizes as rows,
/// workspaces.
///
/// Errors  InternalError: a tensor that is not contiguous.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>

#include "strata/base/errors.h"
#include "strata/device/element_of.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata {

inline const void* kernel_input(const at::Tensor& x) {
  if (!x.defined()) return nullptr;
  STRATA_CHECK(x.is_contiguous(), "nn.cuda_input");
  return x.const_data_ptr();
}

inline void* kernel_output(const at::Tensor& x) {
  if (!x.defined()) return nullptr;
  STRATA_CHECK(x.is_contiguous(), "nn.cuda_output");
  return x.data_ptr();
}

/// The same for tensors of a fixed type.
template <typename T>
const T* kernel_input(const at::Tensor& x) {
  const void* pointer = kernel_input(x);
  return pointer ? x.const_data_ptr<T>() : nullptr;
}

template <typename T>
T* kernel_output(const at::Tensor& x) {
  const void* pointer = kernel_input(x);
  return pointer ? x.data_ptr<T>() : nullptr;
}

struct RowShape {
  std::int64_t count, columns;
  explicit RowShape(const at::Tensor& x) : count(x.numel() / x.size(-1)), columns(x.size(-1)) {}
};

inline at::Tensor empty_on_device_of(const at::Tensor& x, at::IntArrayRef shape,
                                     at::ScalarType dtype) {
  return at::empty(shape, x.options().dtype(dtype));
}

/// Allocates a workspace for sums of columns.
inline at::Tensor column_sums_for(const at::Tensor& x, const RowShape& rows) {
  return empty_on_device_of(x, {cuda::column_workspace(rows.count, rows.columns)}, at::kFloat);
}

}  // namespace strata
