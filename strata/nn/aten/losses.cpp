// The target's column is selected by comparison: on a GPU a scatter has no fixed order.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "strata/comm/tensor_parallel.h"
#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/aten/aten_scope.h"

namespace strata {
namespace {

// Returns the rank's columns that are classes, in fp32. Without a gradient the logits stay
// unchanged.
at::Tensor class_logits(const at::Tensor& logits, std::int64_t valid, bool may_overwrite) {
  return logits.narrow(1, 0, valid)
      .to(at::kFloat, /*non_blocking=*/false,
          /*copy=*/!may_overwrite);
}

class AtenLossPrimitives final : public LossPrimitives {
 public:
  void add_loss(const at::Tensor& loss, at::Tensor& logits, const at::Tensor& targets,
                const kernels::CrossEntropy& what, const TensorParallel* group, bool gradient,
                const StepScalars* scalars) const override {
    const AtenScope scope;
    const std::int64_t rows = logits.size(0), valid = what.at.valid;
    const at::Tensor z = class_logits(logits, valid, gradient);
    at::Tensor top = valid > 0
                         ? z.amax(1)
                         : at::full({rows}, -std::numeric_limits<float>::infinity(), z.options());
    if (group) group->all_reduce_max(top);
    z.sub_(top.unsqueeze(1));
    const at::Tensor ignored = targets.eq(what.ignored);
    const at::Tensor is_target = at::arange(what.at.first, what.at.first + valid, targets.options())
                                     .eq(targets.unsqueeze(1))
                                     .bitwise_and(ignored.bitwise_not().unsqueeze(1));
    // Sums the shifted logits: those at the target are also summed, because only one rank has it.
    const at::Tensor shifted = z.sum(1);
    const at::Tensor at_target = at::where(is_target, z, 0).sum(1);
    at::Tensor sums = at::stack({z.exp_().sum(1), at_target, shifted});
    if (group) group->all_reduce_sum(sums);
    const at::Tensor log_sum = sums[0].log();
    at::Tensor losses = log_sum - sums[1];
    if (what.smoothing > 0) {
      const at::Tensor mean = log_sum - sums[2] / static_cast<double>(what.at.classes);
      losses = (1 - what.smoothing) * losses + what.smoothing * mean;
    }
    loss.add_(at::where(ignored, 0, losses).sum(at::kDouble));
    if (!gradient) return;
    const at::Tensor scale = gradient_scale(what.scale, scalars, logits).to(at::kFloat);
    z.mul_((scale / sums[0]).unsqueeze(1));
    if (what.smoothing > 0) z.sub_(scale * (what.smoothing / static_cast<float>(what.at.classes)));
    z.sub_(is_target * (scale * (1 - what.smoothing)));
    z.masked_fill_(ignored.unsqueeze(1), 0);
    if (logits.scalar_type() != at::kFloat) logits.narrow(1, 0, valid).copy_(z);
    logits.narrow(1, valid, logits.size(1) - valid).zero_();
  }

  void add_logistic_loss(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& labels,
                         double scale, const at::Tensor& gradient,
                         const StepScalars* scalars) const override {
    const AtenScope scope;
    const at::Tensor z = logits.to(at::kDouble), label = labels.to(at::kDouble);
    const at::Tensor is_left_out = labels.lt(0), decay = z.abs().neg_().exp_();
    const at::Tensor losses = z.clamp_min(0) - z * label + decay.log1p();
    loss.add_(at::where(is_left_out, 0, losses).sum());
    if (!gradient.defined()) return;
    const at::Tensor probability = at::where(z.ge(0), 1, decay) / (decay + 1);
    gradient.copy_(
        at::where(is_left_out, 0, (probability - label) * gradient_scale(scale, scalars, z)));
  }
};

}  // namespace

const LossPrimitives& aten_losses() {
  static const AtenLossPrimitives losses;
  return losses;
}

}  // namespace strata
