// The loss is known only after the backward, so the forward returns a placeholder and the sum goes
// to a sink. Logits of a chunk become their gradient in place and are freed before the weight
// gradient's buffers are allocated.
#include "strata/nn/ops/head_loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "strata/base/ignored_target.h"
#include "strata/comm/tensor_parallel.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

// Parameters of a micro-batch's loss in addition to tensors.
struct Terms {
  std::int64_t classes;
  double smoothing;
  double scale;
  const TensorParallel* group;
  const StepScalars* scalars;
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

// Calls f(begin, rows, logits) for each chunk of x's rows; the logits are fresh.
template <typename F>
void for_each_chunk(const at::Tensor& x, const at::Tensor& weight, F f) {
  const std::int64_t rows = x.size(0),
                     chunk = head_chunk_rows(x.is_cpu() ? DeviceKind::kCpu : DeviceKind::kCuda);
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    at::Tensor logits = primitives(x).products.logits(x.narrow(0, begin, count), weight);
    f(begin, count, logits);
  }
}

void add_loss_only(LossSink& sink, const at::Tensor& x, const at::Tensor& weight,
                   const at::Tensor& targets, const Terms& terms) {
  const at::Tensor target = targets.view(-1);
  const kernels::CrossEntropy what = cross_entropy_of(weight, terms);
  const at::Tensor loss = zero_loss(sink.sum.options());
  for_each_chunk(as_rows(enter_forward(terms.group, x)), weight,
                 [&](std::int64_t begin, std::int64_t count, at::Tensor& logits) {
                   primitives(x).losses.add_loss(loss, logits, target.narrow(0, begin, count), what,
                                                 terms.group, /*gradient=*/false, terms.scalars);
                 });
  sink.sum.add_(loss);
}

struct HeadLossFunction : torch::autograd::Function<HeadLossFunction> {
  enum Saved { kX, kWeight, kTargets };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, const Terms& terms, LossSink* sink) {
    context->save_for_backward({x, weight, targets});
    context->saved_data["classes"] = terms.classes;
    context->saved_data["smoothing"] = terms.smoothing;
    context->saved_data["scale"] = terms.scale;
    save_pointer(context, "group", terms.group);
    save_pointer(context, "scalars", terms.scalars);
    save_pointer(context, "sink", sink);
    return at::zeros({}, x.options().dtype(at::kFloat));
  }

  static variable_list backward(AutogradContext* context, variable_list) {
    const variable_list saved = context->get_saved_variables();
    const auto& data = context->saved_data;
    const Terms terms{data.at("classes").toInt(), data.at("smoothing").toDouble(),
                      data.at("scale").toDouble(),
                      saved_pointer<const TensorParallel>(context, "group"),
                      saved_pointer<const StepScalars>(context, "scalars")};
    const at::Tensor entered = enter_forward(terms.group, saved[kX]);
    const at::Tensor x = as_rows(entered), &weight = saved[kWeight];
    const at::Tensor target = saved[kTargets].view(-1);
    LossSink& sink = *saved_pointer<LossSink>(context, "sink");
    const kernels::CrossEntropy what = cross_entropy_of(weight, terms);
    const at::Tensor loss = zero_loss(sink.sum.options());
    at::Tensor dx = at::empty_like(x);
    for_each_chunk(x, weight, [&](std::int64_t begin, std::int64_t count, at::Tensor& logits) {
      primitives(x).losses.add_loss(loss, logits, target.narrow(0, begin, count), what, terms.group,
                                    /*gradient=*/true, terms.scalars);
      const at::Tensor gradient = primitives(x).products.as_operand(logits, x.scalar_type());
      logits.reset();  // before the buffers of 16-bit products
      at::Tensor piece = dx.narrow(0, begin, count);
      primitives(x).products.input_gradient(piece, gradient, weight);
      accumulate_weight_gradient(weight, gradient, x.narrow(0, begin, count));
    });
    sink.sum.add_(loss);
    return {enter_backward(terms.group, dx.view(entered.sizes())), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor head_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                     std::int64_t classes, const ForwardContext& context) {
  const Terms terms{classes, context.label_smoothing, context.loss_scale, context.tensor,
                    context.scalars};
  if (at::GradMode::is_enabled())
    return HeadLossFunction::apply(x, weight, targets, terms, context.loss);
  add_loss_only(*context.loss, x, weight, targets, terms);
  return at::zeros({}, x.options().dtype(at::kFloat));
}

}  // namespace strata
