// One thread adds the rows' losses, in fp64 and in their order: the sum doesn't depend on the threads.
// Alone, a rank takes a row through all three steps while it is in the cache; ranks that divide the
// classes meet between the steps.
#include <ATen/ops/empty.h>

#include "strata/device/parallel.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

void HostPrimitives::add_loss(double& loss, at::Tensor& logits, const std::int64_t* targets,
                              const kernels::CrossEntropy& what, const TensorParallel* group,
                              bool gradient) const {
  const std::int64_t rows = logits.size(0), columns = what.at.columns;
  at::Tensor maxima = at::empty({rows}, logits.options());
  at::Tensor summands = at::empty({what.smoothing > 0 ? 3 : 2, rows}, logits.options());
  float *z = logits.data_ptr<float>(), *top = maxima.data_ptr<float>();
  const auto sums_from = [&, sums = summands.data_ptr<float>()](std::int64_t row) {
    return kernels::SoftmaxSums{sums + row, sums + rows + row, sums + 2 * rows + row};
  };
  const auto find_top = [&](std::int64_t begin, std::int64_t end) {
    kernels::largest_logits(z + begin * columns, top + begin, what.at, end - begin);
  };
  const auto sum_up = [&](std::int64_t begin, std::int64_t end) {
    kernels::softmax_sums(z + begin * columns, top + begin, targets + begin, what, sums_from(begin),
                          end - begin, gradient);
  };
  const auto finish = [&](std::int64_t begin, std::int64_t end) {
    kernels::cross_entropy(top + begin, targets + begin, what, sums_from(begin), top + begin,
                           end - begin);
    if (gradient)
      kernels::cross_entropy_gradient(z + begin * columns, targets + begin, what, sums_from(begin),
                                      end - begin);
  };
  if (group) {
    parallel_rows(rows, columns, find_top);
    group->all_reduce_max(maxima);
    parallel_rows(rows, columns, sum_up);
    group->all_reduce_sum(summands);
    parallel_rows(rows, columns, finish);
  } else {
    // Row by row: a row stays in the cache for all three.
    parallel_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        find_top(row, row + 1);
        sum_up(row, row + 1);
        finish(row, row + 1);
      }
    });
  }
  for (std::int64_t row = 0; row < rows; ++row) loss += top[row];
}

}  // namespace strata
