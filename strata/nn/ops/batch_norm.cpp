// The backward adds the micro-batch's moments: a recomputed forward runs twice, a backward once, in
// the same order of micro-batches with any schedule.
#include "strata/nn/ops/batch_norm.h"

#include <ATen/core/grad_mode.h>

#include "strata/base/errors.h"
#include "strata/nn/graph/moments.h"
#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

constexpr double kMomentum = 0.1;

void check_samples(const at::Tensor& x) {
  if (x.size(0) > 1) return;
  throw UserError({.operation = "nn.batch_norm",
                   .what = "one sample has no variance",
                   .expected = "at least 2 samples in each micro-batch of a replica",
                   .got = "1",
                   .fix = "choose train.mini_batch and train.micro_batch so that no micro-batch "
                          "has a single sample, or set model.batch_norm to none"});
}

struct BatchNormFunction : torch::autograd::Function<BatchNormFunction> {
  enum Saved { kX, kGain, kBias, kRunningMean, kMean, kVariance };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& bias, const at::Tensor& running_mean,
                            double epsilon) {
    const BatchStatistics statistics = primitives(x).norms.batch_statistics(x);
    context->save_for_backward({x, gain, bias, running_mean, statistics.mean, statistics.variance});
    context->saved_data["epsilon"] = epsilon;
    return primitives(x).norms.batch_norm(x, {gain, bias, epsilon}, statistics);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[kX];
    const Norm norm{saved[kGain], saved[kBias], context->saved_data.at("epsilon").toDouble()};
    const BatchStatistics statistics{saved[kMean], saved[kVariance]};
    const at::Tensor dy = gradients[0].clone(at::MemoryFormat::Contiguous);
    primitives(x).norms.batch_norm_gradient(x, dy, norm, statistics,
                                            {norm.gain.grad(), norm.bias.grad()});
    add_moments(saved[kRunningMean].grad(),
                moments_of(x.size(0), statistics.mean, statistics.variance));
    return {dy, {}, {}, {}, {}};
  }
};

}  // namespace

std::vector<WeightSpec> batch_norm_weights(const std::string& prefix, std::int64_t width) {
  const auto spec = [&](const char* name, Init::Kind kind, Statistic statistic) {
    return WeightSpec{.name = prefix + name,
                      .shape = {width},
                      .init = {kind},
                      .statistic = statistic,
                      .momentum = statistic == Statistic::kNone ? 0 : kMomentum};
  };
  return {spec("weight", Init::Kind::kOnes, Statistic::kNone),
          spec("bias", Init::Kind::kZeros, Statistic::kNone),
          spec("running_mean", Init::Kind::kZeros, Statistic::kMean),
          spec("running_var", Init::Kind::kOnes, Statistic::kVariance)};
}

at::Tensor batch_norm(const at::Tensor& x, const BatchNorm& norm, const ForwardContext& context) {
  if (!context.training)
    return primitives(x).norms.batch_norm(x, {norm.gain, norm.bias, norm.epsilon},
                                          {norm.running_mean, norm.running_variance});
  check_samples(x);
  return BatchNormFunction::apply(x, norm.gain, norm.bias, norm.running_mean, norm.epsilon);
}

}  // namespace strata
