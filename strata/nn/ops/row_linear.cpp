#include "strata/nn/ops/row_linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/primitives.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

at::Tensor project(const at::Tensor& rows, const at::Tensor& weight, at::IntArrayRef like,
                   const TensorParallel* group) {
  std::vector<std::int64_t> shape = like.vec();
  shape.back() = weight.size(0);
  return leave_forward(group, product(rows, weight, {}).view(shape));
}

const TensorParallel* saved_group(AutogradContext* context) {
  return kept_pointer<const TensorParallel>(context->saved_data["group"]);
}

struct RowLinearFunction : torch::autograd::Function<RowLinearFunction> {
  enum Saved { kX, kWeight };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const TensorParallel* group) {
    context->save_for_backward({x, weight});
    context->saved_data["group"] = keep_pointer(group);
    return project(as_rows(x), weight, x.sizes(), group);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[kX], &weight = saved[kWeight];
    const at::Tensor dy = as_rows(leave_backward(saved_group(context), gradients[0].contiguous()));
    accumulate_weight_gradient(weight, dy, as_rows(x));
    return {input_gradient(dy, weight).view(x.sizes()), {}, {}};
  }
};

struct SwigluLinearFunction : torch::autograd::Function<SwigluLinearFunction> {
  enum Saved { kGateUp, kWeight, kGated };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up,
                            const at::Tensor& weight, bool keep, const TensorParallel* group) {
    const at::Tensor gated = primitives(gate_up).swiglu(gate_up);
    variable_list saved = {gate_up, weight};
    if (keep) saved.push_back(gated);
    context->save_for_backward(std::move(saved));
    context->saved_data["group"] = keep_pointer(group);
    return project(gated, weight, gate_up.sizes(), group);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate_up = saved[kGateUp], &weight = saved[kWeight];
    const bool kept = saved.size() > kGated;
    const at::Tensor dy = as_rows(leave_backward(saved_group(context), gradients[0].contiguous()));
    if (kept) accumulate_weight_gradient(weight, dy, saved[kGated]);
    const at::Tensor again = input_gradient(dy, weight);  // the gradient, then the value again
    const at::Tensor dgate_up = primitives(gate_up).swiglu_gradient(gate_up, again);
    if (!kept) accumulate_weight_gradient(weight, dy, again);
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
