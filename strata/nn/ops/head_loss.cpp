#include "strata/nn/ops/head_loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "strata/base/ignored_target.h"
#include "strata/nn/kernels/kernels.h"
#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/parallel.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// What the loss of a micro-batch needs beside tensors.
struct Terms {
  std::int64_t classes;
  double smoothing;
  double scale;
  const TensorParallel* group;
};

kernels::CrossEntropy cross_entropy_of(const at::Tensor& weight, const Terms& terms) {
  const std::int64_t columns = weight.size(0);
  const std::int64_t first = terms.group ? terms.group->rank() * columns : 0;
  return {.at = {.columns = columns,
                 .valid = std::clamp<std::int64_t>(terms.classes - first, 0, columns),
                 .first = first,
                 .classes = terms.classes},
          .ignored = kIgnoredTarget,
          .smoothing = static_cast<float>(terms.smoothing),
          .scale = static_cast<float>(terms.scale)};
}

// Adds the losses of a chunk of rows to `loss` in row order; the logits become their gradient if it
// is wanted. The ranks that divide the vocabulary add up their rows' maxima and sums.
void add_chunk_loss(double& loss, at::Tensor& logits, const std::int64_t* targets,
                    const kernels::CrossEntropy& what, const TensorParallel* group, bool gradient) {
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

// Calls f(begin, rows, logits) for each chunk of x's rows; the logits are fresh and fp32.
template <typename F>
void for_each_chunk(const at::Tensor& x, const at::Tensor& weight, F f) {
  const std::int64_t rows = x.size(0);
  for (std::int64_t begin = 0; begin < rows; begin += kHeadChunkRows) {
    const std::int64_t count = std::min(kHeadChunkRows, rows - begin);
    at::Tensor logits = in_fp32(at::mm(x.narrow(0, begin, count), weight.t()));
    f(begin, count, logits);
  }
}

double loss_only(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                 const Terms& terms) {
  const std::int64_t* target = targets.const_data_ptr<std::int64_t>();
  const kernels::CrossEntropy what = cross_entropy_of(weight, terms);
  double loss = 0;
  for_each_chunk(as_rows(enter_forward(terms.group, x)), weight,
                 [&](std::int64_t begin, std::int64_t, at::Tensor& logits) {
                   add_chunk_loss(loss, logits, target + begin, what, terms.group, false);
                 });
  return loss;
}

struct HeadLossFunction : torch::autograd::Function<HeadLossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, const Terms& terms, LossSink* sink) {
    context->save_for_backward({x, weight, targets});
    context->saved_data["classes"] = terms.classes;
    context->saved_data["smoothing"] = terms.smoothing;
    context->saved_data["scale"] = terms.scale;
    context->saved_data["group"] = keep_pointer(terms.group);
    context->saved_data["sink"] = keep_pointer(sink);
    return at::zeros({}, at::kFloat);
  }

  static variable_list backward(AutogradContext* context, variable_list) {
    const variable_list saved = context->get_saved_variables();
    auto& kept = context->saved_data;
    const Terms terms{kept["classes"].toInt(), kept["smoothing"].toDouble(),
                      kept["scale"].toDouble(), kept_pointer<const TensorParallel>(kept["group"])};
    const at::Tensor entered = enter_forward(terms.group, saved[0]);
    const at::Tensor x = as_rows(entered), &weight = saved[1];
    const std::int64_t* target = saved[2].const_data_ptr<std::int64_t>();
    const kernels::CrossEntropy what = cross_entropy_of(weight, terms);
    double loss = 0;
    at::Tensor dx = at::empty_like(x);
    for_each_chunk(x, weight, [&](std::int64_t begin, std::int64_t count, at::Tensor& logits) {
      add_chunk_loss(loss, logits, target + begin, what, terms.group, true);
      const at::Tensor gradient = logits.to(x.scalar_type());
      logits.reset();  // not beside the products of 16 bit
      at::Tensor piece = dx.narrow(0, begin, count);
      at::mm_out(piece, gradient, weight);
      accumulate_weight_gradient(weight, gradient, x.narrow(0, begin, count));
    });
    kept_pointer<LossSink>(kept["sink"])->sum += loss;
    return {enter_backward(terms.group, dx.view(entered.sizes())), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor head_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                     std::int64_t classes, const ForwardContext& context) {
  const Terms terms{classes, context.label_smoothing, context.loss_scale, context.tensor};
  if (at::GradMode::is_enabled())
    return HeadLossFunction::apply(x, weight, targets, terms, context.loss);
  context.loss->sum += loss_only(x, weight, targets, terms);
  return at::zeros({}, at::kFloat);
}

}  // namespace strata
