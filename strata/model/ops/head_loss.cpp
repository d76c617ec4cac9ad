#include "strata/model/ops/head_loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "strata/base/ignored_target.h"
#include "strata/model/kernels/kernels.h"
#include "strata/model/ops/linear.h"
#include "strata/model/ops/parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// Calls f(begin, rows, logits, losses) for each chunk; logits are fresh, losses are f's to fill and
// are added here in fp64, in row order.
template <typename F>
double for_each_chunk(const at::Tensor& x, const at::Tensor& weight, F f) {
  const std::int64_t rows = x.size(0);
  const at::Tensor losses = at::empty({std::min(rows, kHeadChunkRows)}, x.options());
  double sum = 0;
  for (std::int64_t begin = 0; begin < rows; begin += kHeadChunkRows) {
    const std::int64_t count = std::min(kHeadChunkRows, rows - begin);
    at::Tensor logits = at::mm(x.narrow(0, begin, count), weight.t());
    float* loss = losses.data_ptr<float>();
    f(begin, count, logits, loss);
    for (std::int64_t i = 0; i < count; ++i) sum += loss[i];
  }
  return sum;
}

double loss_only(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets) {
  const std::int64_t* target = targets.const_data_ptr<std::int64_t>();
  return for_each_chunk(
      x, weight, [&](std::int64_t first, std::int64_t count, at::Tensor& logits, float* loss) {
        const std::int64_t columns = logits.size(1);
        parallel_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
          kernels::cross_entropy(logits.const_data_ptr<float>() + begin * columns,
                                 target + first + begin, kIgnoredTarget, loss + begin, end - begin,
                                 columns);
        });
      });
}

struct HeadLossFunction : torch::autograd::Function<HeadLossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, double scale, std::int64_t sink) {
    context->save_for_backward({x, weight, targets});
    context->saved_data["scale"] = scale;
    context->saved_data["sink"] = sink;
    return at::zeros({}, x.options());
  }

  static variable_list backward(AutogradContext* context, variable_list) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x = as_rows(saved[0]), &weight = saved[1];
    const std::int64_t* target = saved[2].const_data_ptr<std::int64_t>();
    const auto scale = static_cast<float>(context->saved_data["scale"].toDouble());
    auto* sink = reinterpret_cast<LossSink*>(context->saved_data["sink"].toInt());
    at::Tensor dx = at::empty_like(x);
    sink->sum += for_each_chunk(
        x, weight, [&](std::int64_t first, std::int64_t count, at::Tensor& logits, float* loss) {
          const std::int64_t columns = logits.size(1);
          float* z = logits.data_ptr<float>();
          parallel_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
            kernels::cross_entropy_with_gradient(z + begin * columns, target + first + begin,
                                                 kIgnoredTarget, scale, loss + begin, end - begin,
                                                 columns);
          });
          at::Tensor piece = dx.narrow(0, first, count);
          at::mm_out(piece, logits, weight);
          accumulate_weight_gradient(weight, logits, x.narrow(0, first, count));
        });
    return {dx.view(saved[0].sizes()), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor head_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                     const ForwardContext& context) {
  if (at::GradMode::is_enabled())
    return HeadLossFunction::apply(x, weight, targets, context.loss_scale,
                                   reinterpret_cast<std::int64_t>(context.loss));
  context.loss->sum += loss_only(as_rows(x), weight, targets);
  return at::zeros({}, x.options());
}

}  // namespace strata
