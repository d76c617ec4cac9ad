#include "strata/nn/ops/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// Part 0, 1, 2 (query, key, value) of the packed tensor as [B, heads, T, head width], a view.
at::Tensor part(const at::Tensor& qkv, std::int64_t heads, int index) {
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  return qkv.narrow(2, index * width, width)
      .view({batch, length, heads, width / heads})
      .transpose(1, 2);
}

struct CausalAttentionFunction : torch::autograd::Function<CausalAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, std::int64_t heads) {
    const auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        part(qkv, heads, 0), part(qkv, heads, 1), part(qkv, heads, 2), /*dropout_p=*/0.0,
        /*is_causal=*/true);
    // The kernel lays its output out as [B, T, heads, width]: joining the heads is a view.
    at::Tensor y = out.transpose(1, 2).reshape({qkv.size(0), qkv.size(1), qkv.size(2) / 3});
    context->save_for_backward({qkv, y, log_sum});
    context->saved_data["heads"] = heads;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &y = saved[1];
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const auto split = [&](const at::Tensor& x) {
      return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
    };
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        split(gradients[0].contiguous()), part(qkv, heads, 0), part(qkv, heads, 1),
        part(qkv, heads, 2), split(y), saved[2], /*dropout_p=*/0.0, /*is_causal=*/true);
    const at::Tensor dqkv = at::empty_like(qkv);
    part(dqkv, heads, 0).copy_(dq);
    part(dqkv, heads, 1).copy_(dk);
    part(dqkv, heads, 2).copy_(dv);
    return {dqkv, {}};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  return CausalAttentionFunction::apply(qkv, heads);
}

}  // namespace strata
