// Attention is ATen's scaled_dot_product_attention, which chooses a fused kernel of the device.
// Autograd computes its gradient: the forward runs again, so only its inputs are kept. Heads that
// share keys get copies, which every fused kernel accepts; autograd sums their gradients.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <optional>

#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/aten/aten_scope.h"
#include "strata/nn/primitives/pages.h"

namespace strata {
namespace {

// [B, T, heads, width] -> [B, heads * shared, T, width]
at::Tensor heads_of(const at::Tensor& x, std::int64_t shared) {
  const at::Tensor heads = x.transpose(1, 2);
  if (shared == 1) return heads;
  const std::int64_t samples = x.size(0), length = x.size(1), count = x.size(2), width = x.size(3);
  return heads.unsqueeze(2)
      .expand({samples, count, shared, length, width})
      .reshape({samples, count * shared, length, width});
}

at::Tensor attended_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t shared = q.size(2) / k.size(2);
  return at::scaled_dot_product_attention(heads_of(q, 1), heads_of(k, shared), heads_of(v, shared),
                                          /*attn_mask=*/std::nullopt, /*dropout_p=*/0.0,
                                          /*is_causal=*/true)
      .transpose(1, 2);
}

class AtenAttentionPrimitives final : public AttentionPrimitives {
 public:
  void rotate(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) const override {
    const AtenScope scope;
    const std::int64_t half = x.size(3) / 2;
    const at::Tensor cosine = table.narrow(1, 0, half).unsqueeze(1);
    const at::Tensor sine =
        table.narrow(1, half, half).unsqueeze(1) * (turn == RopeTurn::kForward ? 1 : -1);
    const at::Tensor whole = x.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    const at::Tensor first = whole.narrow(3, 0, half), second = whole.narrow(3, half, half);
    x.narrow(3, 0, half).copy_(first * cosine - second * sine);
    x.narrow(3, half, half).copy_(first * sine + second * cosine);
  }

  Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const override {
    at::Tensor y = at::empty({q.size(0), q.size(1), q.size(2) * q.size(3)}, q.options());
    const AtenScope scope;
    y.view(q.sizes()).copy_(attended_heads(q, k, v));
    return {.y = y, .log_sum = {}};
  }

  void attend_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Attended& /*attended*/, const at::Tensor& dy, const at::Tensor& dq,
                       const at::Tensor& dk, const at::Tensor& dv) const override {
    const UnchargedScope temporaries;
    torch::autograd::variable_list gradients;
    {
      const at::AutoGradMode with_graph(true);
      const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(true); };
      const torch::autograd::variable_list leaves = {leaf(q), leaf(k), leaf(v)};
      const at::Tensor y = attended_heads(leaves[0], leaves[1], leaves[2]);
      gradients = torch::autograd::grad({y}, leaves, {dy.view(q.sizes())});
    }
    const AtenScope scope;
    dq.copy_(gradients[0]);
    dk.copy_(gradients[1]);
    dv.copy_(gradients[2]);
  }

  // The kernels count causality from the first key, so new tokens after others need a mask.
  at::Tensor attend_pages(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                          const PagedText& text) const override {
    const std::int64_t tokens = q.size(1);
    at::Tensor y = at::empty({1, tokens, q.size(2) * q.size(3)}, q.options());
    const AtenScope scope;
    std::optional<at::Tensor> mask;
    if (tokens > 1 && text.position > 0)
      mask = at::full({tokens, text.position + tokens}, -std::numeric_limits<double>::infinity(),
                      q.options())
                 .triu_(text.position + 1);
    y.view(q.sizes()).copy_(
        at::scaled_dot_product_attention(q.transpose(1, 2), gathered(keys, text, tokens),
                                         gathered(values, text, tokens), mask, /*dropout_p=*/0.0,
                                         /*is_causal=*/tokens > 1 && !mask, /*scale=*/std::nullopt,
                                         /*enable_gqa=*/q.size(2) != keys.size(1))
            .transpose(1, 2));
    return y;
  }
};

}  // namespace

const AttentionPrimitives& aten_attention() {
  static const AtenAttentionPrimitives attention;
  return attention;
}

}  // namespace strata
