/// Splits the work inside layers among the ranks of a tensor-parallel group.
///
/// A layer is still written as for one device: its weights say which axis is split (WeightSplit),
/// its operators enter a split region and leave it. Between regions every rank has the whole
/// activation, or, with sequence parallelism, its part of the sequence. comm/tensor_group.h
/// implements the group; a null pointer stands for a group of one, for which the four borders are
/// identities.
///
/// Source   Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022 (sequence parallelism).
/// Shapes   activations [samples, length, ...]; the sequence is dimension 1, divided evenly.
/// Threads  collective: all ranks of the group call the same methods in the same order.
/// Errors   Cancelled when another rank failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "strata/layout/context_split.h"

namespace strata {

/// How many ranks a model is split among; fixed when its layers are made.
struct TensorSplit {
  int ranks = 1;
  bool sequence = false;      ///< activations between split regions are divided along the sequence
  ContextSplit context = {};  ///< how other ranks divide the tokens that a layer gets
};

class TensorParallel {
 public:
  virtual ~TensorParallel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool sequence() const = 0;

  /// In place, contiguous; sums in rank order: the same bits on every rank.
  virtual void all_reduce_sum(at::Tensor& x) const = 0;
  virtual void all_reduce_max(at::Tensor& x) const = 0;

  /// [B, T/n, ...] of each rank -> [B, T, ...]
  virtual at::Tensor gather_sequence(const at::Tensor& x) const = 0;
  /// [B, T, ...], a partial sum on each rank -> [B, T/n, ...] of the sum
  virtual at::Tensor reduce_scatter_sequence(const at::Tensor& x) const = 0;
};

/// Before a column-parallel product: every rank must have the whole x.
inline at::Tensor enter_forward(const TensorParallel* group, const at::Tensor& x) {
  return group && group->sequence() ? group->gather_sequence(x) : x;
}

/// The gradient of that x: partial on each rank until it is summed. May overwrite dx.
inline at::Tensor enter_backward(const TensorParallel* group, at::Tensor dx) {
  if (!group) return dx;
  if (group->sequence()) return group->reduce_scatter_sequence(dx);
  group->all_reduce_sum(dx);
  return dx;
}

/// After a row-parallel product: y is partial on each rank until it is summed. May overwrite y.
inline at::Tensor leave_forward(const TensorParallel* group, at::Tensor y) {
  return enter_backward(group, std::move(y));  // the same sum, at the other border
}

/// The gradient of that y: every rank must have the whole dy.
inline at::Tensor leave_backward(const TensorParallel* group, const at::Tensor& dy) {
  return enter_forward(group, dy);
}

}  // namespace strata
