#include "strata/nn/ops/attention.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/primitives.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// Part 0, 1, 2 (query, key, value) of the packed tensor as [B, T, heads, head width], a view.
at::Tensor part(const at::Tensor& qkv, std::int64_t heads, int index) {
  const std::int64_t width = qkv.size(2) / 3;
  return qkv.narrow(2, index * width, width).view({qkv.size(0), qkv.size(1), heads, width / heads});
}

struct CausalAttentionFunction : torch::autograd::Function<CausalAttentionFunction> {
  enum Saved { kQkv, kY, kLogSum };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, std::int64_t heads) {
    const Attended attended =
        primitives(qkv).attend(part(qkv, heads, 0), part(qkv, heads, 1), part(qkv, heads, 2));
    context->save_for_backward({qkv, attended.y, attended.log_sum});
    context->saved_data["heads"] = heads;
    return attended.y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[kQkv];
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const at::Tensor dqkv = at::empty_like(qkv);
    primitives(qkv).attend_gradient(part(qkv, heads, 0), part(qkv, heads, 1), part(qkv, heads, 2),
                                    {saved[kY], saved[kLogSum]}, gradients[0].contiguous(),
                                    part(dqkv, heads, 0), part(dqkv, heads, 1),
                                    part(dqkv, heads, 2));
    return {dqkv, {}};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  return CausalAttentionFunction::apply(qkv, heads);
}

}  // namespace strata
