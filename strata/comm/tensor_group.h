/// Joins the tensor-parallel ranks of a mesh: the borders of split regions as collectives of a
/// group.
///
/// Threads  as Group. A layer's graph keeps a pointer to it: it must outlive every backward.
#pragma once

#include "strata/comm/group.h"
#include "strata/comm/tensor_parallel.h"

namespace strata {

class TensorGroup final : public TensorParallel {
 public:
  /// `line`: the tensor-parallel ranks of the model that this rank has a slice of; kept by
  /// reference.
  TensorGroup(Group& line, bool sequence) : line_(line), sequence_(sequence) {}

  int rank() const override { return line_.rank(); }
  int size() const override { return line_.size(); }
  bool sequence() const override { return sequence_; }

  void all_reduce_sum(at::Tensor& x) const override;
  void all_reduce_max(at::Tensor& x) const override;
  at::Tensor gather_sequence(const at::Tensor& x) const override;
  at::Tensor reduce_scatter_sequence(const at::Tensor& x) const override;

 private:
  Group& line_;
  bool sequence_;
};

}  // namespace strata
