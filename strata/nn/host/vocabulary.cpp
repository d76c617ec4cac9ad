// Both ends of a vocabulary: rows of tokens, and the loss of logits.
//
// In backward threads divide the columns, so one thread computes every sum of rows, in ascending
// order. One thread also adds the rows' losses, in fp64. A single rank computes all three steps of
// the loss for a row while it is in the cache; ranks that divide the classes exchange results
// between the steps.
#include <ATen/ops/empty.h>

#include <cstring>

#include "strata/comm/tensor_parallel.h"
#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/host_primitives.h"

namespace strata {

at::Tensor HostRowPrimitives::gather(const at::Tensor& tokens, const at::Tensor& weight,
                                     std::int64_t first) const {
  const std::int64_t count = weight.size(0), width = weight.size(1);
  at::Tensor y = at::empty({tokens.size(0), tokens.size(1), width}, weight.options());
  const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
  const auto bytes = static_cast<std::size_t>(width) * weight.element_size();
  parallel_rows(tokens.numel(), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = token[i] - first;
      if (row >= 0 && row < count) {
        std::memcpy(mutable_at_element(y, i * width), at_element(weight, row * width), bytes);
      } else {
        std::memset(mutable_at_element(y, i * width), 0, bytes);
      }
    }
  });
  return y;
}

void HostRowPrimitives::add_rows(const at::Tensor& tokens, const at::Tensor& dy,
                                 const at::Tensor& sum, std::int64_t first) const {
  const std::int64_t count = sum.size(0), width = sum.size(1), positions = tokens.numel();
  const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
  float* sums = sum.data_ptr<float>();
  parallel_columns(positions, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < positions; ++i) {
      const std::int64_t row = token[i] - first;
      if (row >= 0 && row < count)
        kernels::add_to(element_of(dy), at_element(dy, i * width + begin),
                        sums + row * width + begin, end - begin);
    }
  });
}

void HostRowPrimitives::add_positions(const at::Tensor& x, const at::Tensor& positions) const {
  const std::int64_t length = x.size(1), width = x.size(2);
  parallel_rows(x.size(0) * length, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      kernels::add(element_of(x), at_element(x, i * width),
                   at_element(positions, i % length * width), mutable_at_element(x, i * width),
                   width);
  });
}

void HostRowPrimitives::add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const {
  const std::int64_t length = dy.size(1), width = dy.size(2), rows = dy.size(0) * length;
  float* sums = sum.data_ptr<float>();
  parallel_columns(rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < rows; ++i)
      kernels::add_to(element_of(dy), at_element(dy, i * width + begin),
                      sums + i % length * width + begin, end - begin);
  });
}

void HostLossPrimitives::add_loss(const at::Tensor& loss, at::Tensor& logits,
                                  const at::Tensor& targets, const kernels::CrossEntropy& what,
                                  const TensorParallel* group, bool gradient,
                                  const StepScalars* scalars) const {
  STRATA_CHECK(!scalars, "nn.add_loss");
  const std::int64_t rows = logits.size(0), columns = what.at.columns;
  at::Tensor maxima = at::empty({rows}, logits.options());
  at::Tensor summands = at::empty({what.smoothing > 0 ? 3 : 2, rows}, logits.options());
  const std::int64_t* target = targets.const_data_ptr<std::int64_t>();
  float *z = logits.data_ptr<float>(), *top = maxima.data_ptr<float>();
  const auto sums_from = [&, sums = summands.data_ptr<float>()](std::int64_t row) {
    return kernels::SoftmaxSums{sums + row, sums + rows + row, sums + 2 * rows + row};
  };
  const auto find_top = [&](std::int64_t begin, std::int64_t end) {
    kernels::largest_logits(z + begin * columns, top + begin, what.at, end - begin);
  };
  const auto sum_up = [&](std::int64_t begin, std::int64_t end) {
    kernels::softmax_sums(z + begin * columns, top + begin, target + begin, what, sums_from(begin),
                          end - begin, gradient);
  };
  const auto finish = [&](std::int64_t begin, std::int64_t end) {
    kernels::cross_entropy(top + begin, target + begin, what, sums_from(begin), top + begin,
                           end - begin);
    if (gradient)
      kernels::cross_entropy_gradient(z + begin * columns, target + begin, what, sums_from(begin),
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
  double* sum = loss.data_ptr<double>();
  for (std::int64_t row = 0; row < rows; ++row) *sum += top[row];
}

}  // namespace strata
