#include "strata/nn/ops/row_linear.h"

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

namespace {

at::Tensor project(const at::Tensor& rows, const at::Tensor& weight, at::IntArrayRef like,
                   const TensorParallel* group) {
  std::vector<std::int64_t> shape = like.vec();
  shape.back() = weight.size(0);
  return leave_forward(group, at::mm(rows, weight.t()).view(shape));
}

const TensorParallel* saved_group(AutogradContext* context) {
  return kept_pointer<const TensorParallel>(context->saved_data["group"]);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const std::int64_t width = gate_up.size(-1) / 2, rows = gate_up.numel() / (2 * width);
  at::Tensor y = at::empty({rows, width}, gate_up.options());
  in_fp32_pieces(rows, {gate_up}, {y}, [&](std::int64_t, std::int64_t count, auto from, auto to) {
    parallel_rows(count, width, [&](std::int64_t begin, std::int64_t end) {
      kernels::swiglu(from[0] + begin * 2 * width, to[0] + begin * width, end - begin, width);
    });
  });
  return y;
}

struct RowLinearFunction : torch::autograd::Function<RowLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const TensorParallel* group) {
    context->save_for_backward({x, weight});
    context->saved_data["group"] = keep_pointer(group);
    return project(as_rows(x), weight, x.sizes(), group);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = as_rows(leave_backward(saved_group(context), gradients[0].contiguous()));
    accumulate_weight_gradient(weight, dy, as_rows(x));
    return {at::mm(dy, weight).view(x.sizes()), {}, {}};
  }
};

struct SwigluLinearFunction : torch::autograd::Function<SwigluLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up,
                            const at::Tensor& weight, bool keep, const TensorParallel* group) {
    const at::Tensor gated = swiglu(gate_up);
    variable_list saved = {gate_up, weight};
    if (keep) saved.push_back(gated);
    context->save_for_backward(std::move(saved));
    context->saved_data["group"] = keep_pointer(group);
    return project(gated, weight, gate_up.sizes(), group);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate_up = saved[0], &weight = saved[1];
    const at::Tensor dy = as_rows(leave_backward(saved_group(context), gradients[0].contiguous()));
    if (saved.size() > 2) accumulate_weight_gradient(weight, dy, saved[2]);
    const at::Tensor again = at::mm(dy, weight);  // the gradient, then the kernel's output again
    const at::Tensor dgate_up = at::empty_like(gate_up);
    const std::int64_t width = again.size(1);
    in_fp32_pieces(again.size(0), {gate_up, again}, {dgate_up, again},
                   [&](std::int64_t, std::int64_t count, auto from, auto to) {
                     parallel_rows(count, width, [&](std::int64_t begin, std::int64_t end) {
                       kernels::swiglu_backward(from[0] + begin * 2 * width,
                                                from[1] + begin * width, to[0] + begin * 2 * width,
                                                to[1] + begin * width, end - begin, width);
                     });
                   });
    if (saved.size() == 2) accumulate_weight_gradient(weight, dy, again);
    return {dgate_up, {}, {}, {}};
  }
};

}  // namespace

at::Tensor row_linear(const at::Tensor& x, const at::Tensor& weight, const TensorParallel* group) {
  return RowLinearFunction::apply(x, weight, group);
}

at::Tensor swiglu_linear(const at::Tensor& gate_up, const at::Tensor& weight, bool keep,
                         const TensorParallel* group) {
  return SwigluLinearFunction::apply(gate_up, weight, keep, group);
}

}  // namespace strata
