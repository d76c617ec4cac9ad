#include "strata/comm/tensor_group.h"

#include "strata/comm/collectives.h"

namespace strata {

namespace {
constexpr int kSequenceDim = 1;
}

void TensorGroup::all_reduce_sum(at::Tensor& x) const { strata::all_reduce_sum(line_, x); }

void TensorGroup::all_reduce_max(at::Tensor& x) const { strata::all_reduce_max(line_, x); }

at::Tensor TensorGroup::gather_sequence(const at::Tensor& x) const {
  return all_gather(line_, x, kSequenceDim);
}

at::Tensor TensorGroup::reduce_scatter_sequence(const at::Tensor& x) const {
  return reduce_scatter(line_, x, kSequenceDim);
}

}  // namespace strata
