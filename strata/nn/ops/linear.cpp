#include "strata/nn/ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/kernels/kernels.h"
#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/ops/layer_norm.h"
#include "strata/nn/ops/parallel.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

void accumulate_weight_gradient(const at::Tensor& weight, const at::Tensor& dy,
                                const at::Tensor& x) {
  at::Tensor gradient = weight.grad();
  if (x.scalar_type() == at::kFloat) {
    gradient.addmm_(dy.t(), x);
  } else {
    add_in_fp32(gradient, at::mm(dy.t(), x));
  }
}

void accumulate_bias_gradient(const at::Tensor& bias, const at::Tensor& dy) {
  const std::int64_t rows = dy.size(0), columns = dy.size(1);
  float* sum = bias.grad().data_ptr<float>();
  in_fp32_pieces(rows, {dy}, {}, [&](std::int64_t, std::int64_t count, auto from, auto) {
    parallel_columns(count, columns, [&](std::int64_t begin, std::int64_t end) {
      kernels::add_column_sums(from[0], sum, count, columns, begin, end);
    });
  });
}

namespace {

// x weightᵀ, plus the bias if there is one.
at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  const at::Tensor rows = as_rows(x), columns = weight.t();
  return (bias.defined() ? at::addmm(bias, rows, columns) : at::mm(rows, columns)).view(shape);
}

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

at::Tensor gelu_forward(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  in_fp32_pieces(rows, {x}, {y}, [&](std::int64_t, std::int64_t count, auto from, auto to) {
    parallel_elements(count * columns, [&](std::int64_t begin, std::int64_t end) {
      kernels::gelu(from[0] + begin, to[0] + begin, end - begin);
    });
  });
  return y;
}

// The gradient at y becomes the one at x.
void gelu_gradient(const at::Tensor& x, const at::Tensor& gradient) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  in_fp32_pieces(
      rows, {x, gradient}, {gradient}, [&](std::int64_t, std::int64_t count, auto from, auto to) {
        parallel_elements(count * columns, [&](std::int64_t begin, std::int64_t end) {
          kernels::gelu_backward(from[0] + begin, from[1] + begin, to[0] + begin, end - begin);
        });
      });
}

// The same; gives y again.
at::Tensor gelu_gradient_and_value(const at::Tensor& x, const at::Tensor& gradient) {
  at::Tensor y = at::empty_like(x);
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  in_fp32_pieces(rows, {x, gradient}, {gradient, y},
                 [&](std::int64_t, std::int64_t count, auto from, auto to) {
                   parallel_elements(count * columns, [&](std::int64_t begin, std::int64_t end) {
                     kernels::gelu_backward(from[0] + begin, from[1] + begin, to[0] + begin,
                                            to[1] + begin, end - begin);
                   });
                 });
  return y;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, RowParallel split) {
    context->save_for_backward({x, weight, bias});
    context->saved_data["group"] = keep_pointer(split.group);
    if (!split.group) return multiply(x, weight, bias);
    return leave(split.group, multiply(x, weight, {}), bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor dy = gradient_behind(group, gradients[0], saved[2]);
    accumulate_weight_gradient(weight, dy, as_rows(x));
    return {at::mm(dy, weight).view(x.sizes()), {}, {}, {}};
  }
};

struct NormLinearFunction : torch::autograd::Function<NormLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& norm_bias, const at::Tensor& weight,
                            const at::Tensor& bias, bool keep, ColumnParallel split) {
    NormStatistics statistics;
    const at::Tensor normed = layer_norm_forward(x, gain, norm_bias, statistics);
    variable_list saved = {x, gain, norm_bias, statistics.mean, statistics.rstd, weight, bias};
    if (keep) saved.push_back(normed);
    context->save_for_backward(std::move(saved));
    context->saved_data["group"] = keep_pointer(split.group);
    return multiply(enter_forward(split.group, normed), weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &gain = saved[1], &norm_bias = saved[2], &weight = saved[5];
    const NormStatistics statistics{saved[3], saved[4]};
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor dy = as_rows(gradients[0].contiguous());
    std::vector<std::int64_t> entered;  // shape of the whole input
    {
      const at::Tensor normed = enter_forward(
          group, saved.size() > 7 ? saved[7] : layer_norm_again(x, gain, norm_bias, statistics));
      accumulate_weight_gradient(weight, dy, as_rows(normed));
      entered = normed.sizes().vec();
    }
    accumulate_bias_gradient(saved[6], dy);
    at::Tensor dx = enter_backward(group, at::mm(dy, weight).view(entered));
    dx = layer_norm_backward(x, std::move(dx), gain, norm_bias, statistics);
    return {dx.view(x.sizes()), {}, {}, {}, {}, {}, {}};
  }
};

struct GeluLinearFunction : torch::autograd::Function<GeluLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, bool keep, RowParallel split) {
    at::Tensor activated = gelu_forward(x);
    variable_list saved = {x, weight, bias};
    if (keep) saved.push_back(activated);
    context->save_for_backward(std::move(saved));
    context->saved_data["group"] = keep_pointer(split.group);
    if (!split.group) return multiply(activated, weight, bias);
    at::Tensor product = multiply(activated, weight, {});
    activated.reset();  // not beside the buffers of the sum
    return leave(split.group, std::move(product), bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor dy = gradient_behind(group, gradients[0], saved[2]);
    const at::Tensor dx = at::mm(dy, weight);
    if (saved.size() > 3) {
      accumulate_weight_gradient(weight, dy, as_rows(saved[3]));
      gelu_gradient(x, dx);
    } else {
      accumulate_weight_gradient(weight, dy, as_rows(gelu_gradient_and_value(x, dx)));
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
