/// Sums and copies tensors of one kind of device in stream order: everything that collectives need
/// of a device that runs asynchronously. A CPU has none; loops over host memory do it
/// (comm/ordered_sum.cpp).
///
/// No call waits: its inputs must be complete, and stay allocated, in stream order.
///
/// Shapes   dense tensors; those of one call have one shape and dtype (fp64, fp32, bf16, fp16).
/// Threads  any; a stream has one user at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "strata/device/device.h"

namespace strata {

class StreamOps {
 public:
  virtual ~StreamOps() = default;

  /// Whether its bytes are on a device of this kind, not in host memory.
  virtual bool owns(const at::Tensor& x) const = 0;

  /// Uninitialised and contiguous: on the stream's device, freed in stream order; or pinned host
  /// memory.
  virtual at::Tensor empty(const Stream& stream, at::IntArrayRef sizes,
                           at::ScalarType dtype) const = 0;
  virtual at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType dtype) const = 0;

  /// The same with the strides of `like`, which is dense.
  at::Tensor empty_like(const Stream& stream, const at::Tensor& like) const {
    return empty(stream, {like.numel()}, like.scalar_type())
        .as_strided(like.sizes(), like.strides());
  }
  at::Tensor host_empty_like(const at::Tensor& like) const {
    return host_empty({like.numel()}, like.scalar_type()).as_strided(like.sizes(), like.strides());
  }

  /// Between devices of this process, and between them and host_empty_like(); any strides.
  virtual void copy(const Stream& stream, const at::Tensor& to, const at::Tensor& from) const = 0;

  /// out = terms[0] + terms[1] + ..., each element in that order, 16-bit floats in fp32 until the
  /// last; out may be one of the terms. Terms may lie on other devices of this process.
  virtual void sum_in_order(const Stream& stream, std::span<const at::Tensor> terms,
                            const at::Tensor& out) const = 0;
  virtual void max_of(const Stream& stream, std::span<const at::Tensor> terms,
                      const at::Tensor& out) const = 0;
};

/// Null: the caller does the work, in host memory.
const StreamOps* stream_ops(DeviceKind kind);

/// The CUDA implementation.
/// Errors  UserError in a build without CUDA.
const StreamOps& cuda_stream_ops();

}  // namespace strata
