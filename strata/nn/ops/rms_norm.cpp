#include "strata/nn/ops/rms_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/primitives.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rms_norm_forward(const at::Tensor& x, const at::Tensor& gain, double epsilon,
                            at::Tensor& rstd) {
  return primitives(x).rms_norm(x, gain, static_cast<float>(epsilon), rstd);
}

at::Tensor rms_norm_again(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& rstd) {
  return primitives(x).rms_norm_again(x, gain, rstd);
}

at::Tensor rms_norm_backward(const at::Tensor& x, at::Tensor dy, const at::Tensor& gain,
                             const at::Tensor& rstd, const at::Tensor& dgain) {
  primitives(x).rms_norm_gradient(x, dy, gain, rstd, dgain);
  return dy;
}

namespace {

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  enum Saved { kX, kGain, kRstd };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            double epsilon) {
    at::Tensor rstd;
    at::Tensor y = rms_norm_forward(x, gain, epsilon, rstd);
    context->save_for_backward({x, gain, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    // A copy: the incoming gradient may have other readers.
    const at::Tensor dy = gradients[0].clone(at::MemoryFormat::Contiguous);
    return {
        rms_norm_backward(saved[kX], dy, saved[kGain], saved[kRstd], saved[kGain].grad()), {}, {}};
  }
};

std::vector<std::int64_t> with_last(const at::Tensor& x, std::int64_t size) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = size;
  return shape;
}

struct RmsNormLinearFunction : torch::autograd::Function<RmsNormLinearFunction> {
  enum Saved { kX, kGain, kRstd, kWeight, kBias };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            double epsilon, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, bool keep,
                            const TensorParallel* group) {
    at::Tensor rstd;
    const at::Tensor normed = rms_norm_forward(x, gain, epsilon, rstd);
    variable_list saved = {x, gain, rstd, weight};
    if (bias) saved.push_back(*bias);
    if (keep) saved.push_back(normed);
    context->save_for_backward(std::move(saved));
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["keep"] = keep;
    context->saved_data["group"] = keep_pointer(group);
    return product(enter_forward(group, normed), weight, bias ? *bias : at::Tensor());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[kX], &gain = saved[kGain], &rstd = saved[kRstd];
    const at::Tensor& weight = saved[kWeight];
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor gradient = gradients[0].contiguous(), dy = as_rows(gradient);
    {
      const at::Tensor normed =
          context->saved_data["keep"].toBool() ? saved.back() : rms_norm_again(x, gain, rstd);
      accumulate_weight_gradient(weight, dy, as_rows(enter_forward(group, normed)));
    }
    if (context->saved_data["bias"].toBool()) accumulate_bias_gradient(saved[kBias], dy);
    at::Tensor dx = input_gradient(dy, weight).view(with_last(gradient, x.size(-1)));
    dx = rms_norm_backward(x, enter_backward(group, std::move(dx)), gain, rstd, gain.grad());
    return {dx, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double epsilon) {
  return RmsNormFunction::apply(x, gain, epsilon);
}

at::Tensor rms_norm_linear(const at::Tensor& x, const at::Tensor& gain, double epsilon,
                           const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                           bool keep, const TensorParallel* group) {
  return RmsNormLinearFunction::apply(x, gain, epsilon, weight, bias, keep, group);
}

}  // namespace strata
