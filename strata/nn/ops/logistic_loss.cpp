#include "strata/nn/ops/logistic_loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

at::Tensor smoothed(const at::Tensor& labels, double smoothing) {
  const at::Tensor plain = labels.to(at::kFloat).contiguous();
  if (smoothing == 0) return plain;
  return at::where(plain.lt(0), plain, plain.mul(1 - smoothing).add(0.5 * smoothing));
}

struct LogisticLossFunction : torch::autograd::Function<LogisticLossFunction> {
  enum Saved { kLogits, kLabels };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& labels, double scale, LossSink* sink,
                            const StepScalars* scalars) {
    context->save_for_backward({logits, labels});
    context->saved_data["scale"] = scale;
    save_pointer(context, "sink", sink);
    save_pointer(context, "scalars", scalars);
    return at::zeros({}, logits.options());
  }

  static variable_list backward(AutogradContext* context, variable_list) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient = at::empty_like(saved[kLogits]);
    LossSink& sink = *saved_pointer<LossSink>(context, "sink");
    const at::Tensor loss = zero_loss(sink.sum.options());
    primitives(gradient).losses.add_logistic_loss(
        loss, saved[kLogits], saved[kLabels], context->saved_data.at("scale").toDouble(), gradient,
        saved_pointer<const StepScalars>(context, "scalars"));
    sink.sum.add_(loss);
    return {gradient, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor logistic_loss(const at::Tensor& logits, const at::Tensor& labels,
                         const ForwardContext& context) {
  const at::Tensor targets = smoothed(labels, context.label_smoothing);
  if (at::GradMode::is_enabled())
    return LogisticLossFunction::apply(logits, targets, context.loss_scale, context.loss,
                                       context.scalars);
  LossSink& sink = *context.loss;
  const at::Tensor loss = zero_loss(sink.sum.options());
  primitives(logits).losses.add_logistic_loss(loss, logits, targets, 1, {}, context.scalars);
  sink.sum.add_(loss);
  if (sink.scores && !context.training) sink.scores->push_back(logits);
  return at::zeros({}, logits.options());
}

}  // namespace strata
