#include "strata/nn/ops/layer_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/primitives.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor layer_norm_forward(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                              NormStatistics& statistics) {
  return primitives(x).layer_norm(x, gain, bias, kNormEpsilon, statistics.mean, statistics.rstd);
}

at::Tensor layer_norm_again(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                            const NormStatistics& statistics) {
  return primitives(x).layer_norm_again(x, gain, bias, statistics.mean, statistics.rstd);
}

at::Tensor layer_norm_backward(const at::Tensor& x, at::Tensor dy, const at::Tensor& gain,
                               const at::Tensor& bias, const NormStatistics& statistics) {
  primitives(x).layer_norm_gradient(x, dy, gain, statistics.mean, statistics.rstd, gain.grad(),
                                    bias.grad());
  return dy;
}

namespace {

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  enum Saved { kX, kGain, kBias, kMean, kRstd };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& bias) {
    NormStatistics statistics;
    at::Tensor y = layer_norm_forward(x, gain, bias, statistics);
    context->save_for_backward({x, gain, bias, statistics.mean, statistics.rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    // A copy: the incoming gradient may have other readers.
    return {layer_norm_backward(saved[kX], gradients[0].clone(), saved[kGain], saved[kBias],
                                {saved[kMean], saved[kRstd]}),
            {},
            {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias) {
  return LayerNormFunction::apply(x, gain, bias);
}

}  // namespace strata
