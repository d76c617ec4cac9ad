#include "strata/nn/tensor_parallel.h"

namespace strata {

at::Tensor enter_forward(const TensorParallel* group, const at::Tensor& x) {
  return group && group->sequence() ? group->gather_sequence(x) : x;
}

at::Tensor enter_backward(const TensorParallel* group, at::Tensor dx) {
  if (!group) return dx;
  if (group->sequence()) return group->reduce_scatter_sequence(dx);
  group->all_reduce_sum(dx);
  return dx;
}

at::Tensor leave_forward(const TensorParallel* group, at::Tensor y) {
  return enter_backward(group, std::move(y));  // the same sum, at the other border
}

at::Tensor leave_backward(const TensorParallel* group, const at::Tensor& dy) {
  return enter_forward(group, dy);
}

}  // namespace strata
