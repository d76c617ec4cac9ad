#include "strata/nn/ops/linear.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/ops/layer_norm.h"
#include "strata/nn/primitives.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

void accumulate_weight_gradient(const at::Tensor& weight, const at::Tensor& dy,
                                const at::Tensor& x) {
  primitives(x).add_weight_gradient(weight.grad(), dy, x);
}

void accumulate_bias_gradient(const at::Tensor& bias, const at::Tensor& dy) {
  primitives(dy).add_column_sums(bias.grad(), dy);
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  return primitives(x).product(as_rows(x), weight, bias).view(shape);
}

at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  primitives(dy).input_gradient(dx, dy, weight);
  return dx;
}

namespace {

at::Tensor leave(const TensorParallel* group, at::Tensor product, const at::Tensor& bias) {
  return leave_forward(group, std::move(product)).add_(bias);
}

// The gradient behind a row-parallel product, whole and as rows. The bias was added to what the
// rank has, so its gradient is made of that.
at::Tensor gradient_behind(const TensorParallel* group, const at::Tensor& gradient,
                           const at::Tensor& bias) {
  const at::Tensor dy = gradient.contiguous();
  accumulate_bias_gradient(bias, as_rows(dy));
  return as_rows(leave_backward(group, dy));
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  enum Saved { kX, kWeight, kBias };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, RowParallel split) {
    context->save_for_backward({x, weight, bias});
    context->saved_data["group"] = keep_pointer(split.group);
    if (!split.group) return product(x, weight, bias);
    return leave(split.group, product(x, weight, {}), bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[kX], &weight = saved[kWeight];
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor dy = gradient_behind(group, gradients[0], saved[kBias]);
    accumulate_weight_gradient(weight, dy, as_rows(x));
    return {input_gradient(dy, weight).view(x.sizes()), {}, {}, {}};
  }
};

struct NormLinearFunction : torch::autograd::Function<NormLinearFunction> {
  enum Saved { kX, kGain, kNormBias, kMean, kRstd, kWeight, kBias, kNormed };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& norm_bias, const at::Tensor& weight,
                            const at::Tensor& bias, bool keep, ColumnParallel split) {
    NormStatistics statistics;
    const at::Tensor normed = layer_norm_forward(x, gain, norm_bias, statistics);
    variable_list saved = {x, gain, norm_bias, statistics.mean, statistics.rstd, weight, bias};
    if (keep) saved.push_back(normed);
    context->save_for_backward(std::move(saved));
    context->saved_data["group"] = keep_pointer(split.group);
    return product(enter_forward(split.group, normed), weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[kX], &gain = saved[kGain], &norm_bias = saved[kNormBias];
    const at::Tensor& weight = saved[kWeight];
    const NormStatistics statistics{saved[kMean], saved[kRstd]};
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor dy = as_rows(gradients[0].contiguous());
    std::vector<std::int64_t> entered;  // shape of the whole input
    {
      const at::Tensor normed = enter_forward(
          group, saved.size() > kNormed ? saved[kNormed]
                                        : layer_norm_again(x, gain, norm_bias, statistics));
      accumulate_weight_gradient(weight, dy, as_rows(normed));
      entered = normed.sizes().vec();
    }
    accumulate_bias_gradient(saved[kBias], dy);
    at::Tensor dx = enter_backward(group, input_gradient(dy, weight).view(entered));
    dx = layer_norm_backward(x, std::move(dx), gain, norm_bias, statistics);
    return {dx.view(x.sizes()), {}, {}, {}, {}, {}, {}};
  }
};

struct GeluLinearFunction : torch::autograd::Function<GeluLinearFunction> {
  enum Saved { kX, kWeight, kBias, kActivated };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, bool keep, RowParallel split) {
    at::Tensor activated = primitives(x).gelu(x);
    variable_list saved = {x, weight, bias};
    if (keep) saved.push_back(activated);
    context->save_for_backward(std::move(saved));
    context->saved_data["group"] = keep_pointer(split.group);
    if (!split.group) return product(activated, weight, bias);
    at::Tensor partial = product(activated, weight, {});
    activated.reset();  // not beside the buffers of the sum
    return leave(split.group, std::move(partial), bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[kX], &weight = saved[kWeight];
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor dy = gradient_behind(group, gradients[0], saved[kBias]);
    const at::Tensor dx = input_gradient(dy, weight);
    if (saved.size() > kActivated) {
      accumulate_weight_gradient(weight, dy, as_rows(saved[kActivated]));
      primitives(x).gelu_gradient(x, dx);
    } else {
      accumulate_weight_gradient(weight, dy, as_rows(primitives(x).gelu_gradient_again(x, dx)));
    }
    return {dx.view(x.sizes()), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  RowParallel split) {
  return LinearFunction::apply(x, weight, bias, split);
}

at::Tensor norm_linear(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& norm_bias,
                       const at::Tensor& weight, const at::Tensor& bias, bool keep,
                       ColumnParallel split) {
  return NormLinearFunction::apply(x, gain, norm_bias, weight, bias, keep, split);
}

at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       bool keep, RowParallel split) {
  return GeluLinearFunction::apply(x, weight, bias, keep, split);
}

}  // namespace strata
