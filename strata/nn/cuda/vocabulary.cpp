// A row of the gradient is the sum over the positions of one token: tokens are sorted, stably, and
// a block adds a row's positions in ascending order. The losses of a chunk are added in fp64 in a
// fixed order.
#include <ATen/ops/empty.h>

#include "strata/comm/tensor_parallel.h"
#include "strata/nn/cuda/arguments.h"
#include "strata/nn/cuda/cuda_primitives.h"

namespace strata {

at::Tensor CudaRowPrimitives::gather(const at::Tensor& tokens, const at::Tensor& weight,
                                     std::int64_t first) const {
  const std::int64_t width = weight.size(1);
  at::Tensor y = at::empty({tokens.size(0), tokens.size(1), width}, weight.options());
  cuda::gather_rows(element_of(weight), kernel_input<std::int64_t>(tokens), kernel_input(weight),
                    kernel_output(y), tokens.numel(), width, first, weight.size(0), stream(weight));
  return y;
}

void CudaRowPrimitives::add_rows(const at::Tensor& tokens, const at::Tensor& dy,
                                 const at::Tensor& sum, std::int64_t first) const {
  const std::int64_t positions = tokens.numel(), count = sum.size(0);
  const at::Tensor rows = empty_on_device_of(dy, {positions}, at::kInt);
  const at::Tensor order = empty_on_device_of(dy, {positions}, at::kInt);
  const at::Tensor workspace = empty_on_device_of(dy, {cuda::sort_workspace(positions)}, at::kByte);
  cuda::sort_tokens(kernel_input<std::int64_t>(tokens), positions, first, count,
                    kernel_output<std::int32_t>(rows), kernel_output<std::int32_t>(order),
                    kernel_output(workspace), stream(dy));
  cuda::add_rows(element_of(dy), kernel_input<std::int32_t>(rows),
                 kernel_input<std::int32_t>(order), kernel_input(dy), kernel_output<float>(sum),
                 positions, sum.size(1), count, stream(dy));
}

void CudaRowPrimitives::add_positions(const at::Tensor& x, const at::Tensor& positions) const {
  const RowShape rows(x);
  cuda::add_repeated(element_of(x), kernel_output(x), kernel_input(positions), rows.count,
                     x.size(1), rows.columns, stream(x));
}

void CudaRowPrimitives::add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const {
  cuda::add_position_gradients(element_of(dy), kernel_input(dy), kernel_output<float>(sum),
                               dy.size(0), dy.size(1), dy.size(2), stream(dy));
}

void CudaLossPrimitives::add_loss(const at::Tensor& loss, at::Tensor& logits,
                                  const at::Tensor& targets, const kernels::CrossEntropy& what,
                                  const TensorParallel* group, bool gradient,
                                  const StepScalars* scalars) const {
  const kernels::Element element = element_of(logits);
  const std::int64_t rows = logits.size(0);
  const std::int64_t* target = kernel_input<std::int64_t>(targets);
  const at::Tensor losses = empty_on_device_of(logits, {rows}, at::kDouble);
  if (group) {
    const at::Tensor own_top = empty_on_device_of(logits, {rows}, at::kFloat);
    at::Tensor summands =
        empty_on_device_of(logits, {what.smoothing > 0 ? 3 : 2, rows}, at::kFloat);
    float* sum = kernel_output<float>(summands);
    const kernels::SoftmaxSums sums{sum, sum + rows, what.smoothing > 0 ? sum + 2 * rows : nullptr};
    cuda::softmax_sums(element, kernel_input(logits), target, what, kernel_output<float>(own_top),
                       sums, rows, stream(logits));
    at::Tensor top = own_top.clone();
    group->all_reduce_max(top);
    cuda::rescale_sums(kernel_input<float>(own_top), kernel_input<float>(top), what, sums, rows,
                       stream(logits));
    group->all_reduce_sum(summands);
    cuda::cross_entropy(kernel_input<float>(top), target, what, sums, kernel_output<double>(losses),
                        rows, stream(logits));
    if (gradient)
      cuda::cross_entropy_gradient(element, kernel_output(logits), kernel_input<float>(top), target,
                                   what, sums, rows, scalars, stream(logits));
  } else {
    cuda::cross_entropy_alone(element, kernel_output(logits), target, what,
                              kernel_output<double>(losses), rows, gradient, scalars,
                              stream(logits));
  }
  cuda::add_sum(kernel_input<double>(losses), kernel_output<double>(loss), rows, stream(logits));
}

}  // namespace strata
