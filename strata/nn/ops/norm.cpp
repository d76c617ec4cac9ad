// The gradient at the input is made in place. As an operator of its own a norm works on a copy, for the
// incoming gradient may have other readers; fused ones pass a gradient that is theirs.
#include "strata/nn/ops/norm.h"

#include "strata/nn/ops/saved_values.h"

namespace strata {
namespace {

struct NormFunction : torch::autograd::Function<NormFunction> {
  enum Saved { kX, kGain, kBias, kMean, kRstd };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const std::optional<at::Tensor>& bias, double epsilon) {
    const Norm norm{gain, bias.value_or(at::Tensor()), epsilon};
    NormStatistics statistics;
    at::Tensor y = primitives(x).norm(x, norm, statistics);
    context->save_for_backward({x, gain, norm.bias, statistics.mean, statistics.rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].clone(at::MemoryFormat::Contiguous);
    return {norm_backward(saved[kX], dy, {.gain = saved[kGain], .bias = saved[kBias]},
                          {saved[kMean], saved[kRstd]}),
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor norm_backward(const at::Tensor& x, at::Tensor dy, const Norm& norm,
                         const NormStatistics& statistics) {
  NormSums sums{norm.gain.grad()};
  if (norm.bias.defined()) sums.bias = norm.bias.grad();
  primitives(x).norm_gradient(x, dy, norm, statistics, sums);
  return dy;
}

at::Tensor normalise(const at::Tensor& x, const Norm& norm) {
  return NormFunction::apply(x, norm.gain, if_defined(norm.bias), norm.epsilon);
}

}  // namespace strata
