#include "strata/nn/ops/rms_norm.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/kernels/llama_kernels.h"
#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/parallel.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rms_norm_forward(const at::Tensor& x, const at::Tensor& gain, double epsilon,
                            at::Tensor& rstd) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  at::Tensor y = at::empty_like(x);
  rstd = at::empty({rows}, at::kFloat);
  const at::Tensor scale = in_fp32(gain);
  const float* scales = scale.const_data_ptr<float>();
  float* inverse = rstd.data_ptr<float>();
  in_fp32_pieces(rows, {x}, {y}, [&](std::int64_t first, std::int64_t count, auto from, auto to) {
    parallel_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
      kernels::rms_norm(from[0] + begin * columns, scales, to[0] + begin * columns,
                        inverse + first + begin, end - begin, columns, static_cast<float>(epsilon));
    });
  });
  return y;
}

at::Tensor rms_norm_again(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& rstd) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  at::Tensor y = at::empty_like(x);
  const at::Tensor scale = in_fp32(gain);
  const float* scales = scale.const_data_ptr<float>();
  const float* inverse = rstd.const_data_ptr<float>();
  in_fp32_pieces(rows, {x}, {y}, [&](std::int64_t first, std::int64_t count, auto from, auto to) {
    parallel_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
      kernels::rms_norm_again(from[0] + begin * columns, scales, inverse + first + begin,
                              to[0] + begin * columns, end - begin, columns);
    });
  });
  return y;
}

at::Tensor rms_norm_backward(const at::Tensor& x, at::Tensor dy, const at::Tensor& gain,
                             const at::Tensor& rstd, const at::Tensor& dgain) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  const at::Tensor scale = in_fp32(gain);
  const float* scales = scale.const_data_ptr<float>();
  float* sums = dgain.data_ptr<float>();
  in_fp32_pieces(rows, {x, dy}, {dy},
                 [&](std::int64_t first, std::int64_t count, auto from, auto to) {
                   const float* inverse = rstd.const_data_ptr<float>() + first;
                   parallel_columns(count, columns, [&](std::int64_t begin, std::int64_t end) {
                     kernels::rms_norm_weight_gradient(from[0], from[1], inverse, sums, count,
                                                       columns, begin, end);
                   });
                   // In place: each row is read in full before it is written.
                   parallel_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
                     kernels::rms_norm_backward(from[0] + begin * columns,
                                                from[1] + begin * columns, scales, inverse + begin,
                                                to[0] + begin * columns, end - begin, columns);
                   });
                 });
  return dy;
}

namespace {

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
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
    return {rms_norm_backward(saved[0], dy, saved[1], saved[2], saved[1].grad()), {}, {}};
  }
};

std::vector<std::int64_t> with_last(const at::Tensor& x, std::int64_t size) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = size;
  return shape;
}

struct RmsNormLinearFunction : torch::autograd::Function<RmsNormLinearFunction> {
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
    const at::Tensor entered = enter_forward(group, normed), rows = as_rows(entered);
    const at::Tensor y = bias ? at::addmm(*bias, rows, weight.t()) : at::mm(rows, weight.t());
    return y.view(with_last(entered, weight.size(0)));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &gain = saved[1], &rstd = saved[2], &weight = saved[3];
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor gradient = gradients[0].contiguous(), dy = as_rows(gradient);
    {
      const at::Tensor normed =
          context->saved_data["keep"].toBool() ? saved.back() : rms_norm_again(x, gain, rstd);
      accumulate_weight_gradient(weight, dy, as_rows(enter_forward(group, normed)));
    }
    if (context->saved_data["bias"].toBool()) accumulate_bias_gradient(saved[4], dy);
    at::Tensor dx = at::mm(dy, weight).view(with_last(gradient, x.size(-1)));
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
