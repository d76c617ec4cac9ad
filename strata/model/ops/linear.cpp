#include "strata/model/ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/model/kernels/kernels.h"
#include "strata/model/ops/layer_norm.h"
#include "strata/model/ops/parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

void accumulate_weight_gradient(const at::Tensor& weight, const at::Tensor& dy,
                                const at::Tensor& x) {
  at::Tensor gradient = weight.grad();
  gradient.addmm_(dy.t(), x);
}

void accumulate_bias_gradient(const at::Tensor& bias, const at::Tensor& dy) {
  const std::int64_t rows = dy.size(0), columns = dy.size(1);
  const float* from = dy.const_data_ptr<float>();
  float* to = bias.grad().data_ptr<float>();
  parallel_columns(rows, columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::add_column_sums(from, to, rows, columns, begin, end);
  });
}

namespace {

at::Tensor apply_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  return at::addmm(bias, as_rows(x), weight.t()).view(shape);
}

// Both gradients of y = x weightᵀ + bias, given x; returns the gradient at x, as rows.
at::Tensor linear_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias) {
  accumulate_weight_gradient(weight, dy, as_rows(x));
  accumulate_bias_gradient(bias, dy);
  return at::mm(dy, weight);
}

at::Tensor gelu_forward(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = y.data_ptr<float>();
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::gelu(from + begin, to + begin, end - begin);
  });
  return y;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({x, weight, bias});
    return apply_linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = as_rows(gradients[0].contiguous());
    return {linear_backward(dy, saved[0], saved[1], saved[2]).view(saved[0].sizes()), {}, {}};
  }
};

struct NormLinearFunction : torch::autograd::Function<NormLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& norm_bias, const at::Tensor& weight,
                            const at::Tensor& bias, bool keep) {
    NormStatistics statistics;
    const at::Tensor normed = layer_norm_forward(x, gain, norm_bias, statistics);
    variable_list saved = {x, gain, norm_bias, statistics.mean, statistics.rstd, weight, bias};
    if (keep) saved.push_back(normed);
    context->save_for_backward(std::move(saved));
    return apply_linear(normed, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &gain = saved[1], &norm_bias = saved[2];
    const NormStatistics statistics{saved[3], saved[4]};
    const at::Tensor dy = as_rows(gradients[0].contiguous());
    at::Tensor dx;
    {
      const at::Tensor normed =
          saved.size() > 7 ? saved[7] : layer_norm_again(x, gain, norm_bias, statistics);
      dx = linear_backward(dy, normed, saved[5], saved[6]);
    }
    dx = layer_norm_backward(x, dx, gain, norm_bias, statistics);
    return {dx.view(x.sizes()), {}, {}, {}, {}, {}};
  }
};

struct GeluLinearFunction : torch::autograd::Function<GeluLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, bool keep) {
    const at::Tensor activated = gelu_forward(x);
    variable_list saved = {x, weight, bias};
    if (keep) saved.push_back(activated);
    context->save_for_backward(std::move(saved));
    return apply_linear(activated, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const at::Tensor dy = as_rows(gradients[0].contiguous());
    at::Tensor dx = at::mm(dy, weight);
    const float* from = x.const_data_ptr<float>();
    float* gradient = dx.data_ptr<float>();
    if (saved.size() > 3) {
      accumulate_weight_gradient(weight, dy, as_rows(saved[3]));
      parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
        kernels::gelu_backward(from + begin, gradient + begin, gradient + begin, end - begin);
      });
    } else {
      const at::Tensor activated = at::empty_like(x);
      float* again = activated.data_ptr<float>();
      parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
        kernels::gelu_backward(from + begin, gradient + begin, gradient + begin, again + begin,
                               end - begin);
      });
      accumulate_weight_gradient(weight, dy, as_rows(activated));
    }
    accumulate_bias_gradient(bias, dy);
    return {dx.view(x.sizes()), {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return LinearFunction::apply(x, weight, bias);
}

at::Tensor norm_linear(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& norm_bias,
                       const at::Tensor& weight, const at::Tensor& bias, bool keep) {
  return NormLinearFunction::apply(x, gain, norm_bias, weight, bias, keep);
}

at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       bool keep) {
  return GeluLinearFunction::apply(x, weight, bias, keep);
}

}  // namespace strata
