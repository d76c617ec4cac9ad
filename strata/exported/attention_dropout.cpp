#include "strata/exported/attention_dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace strata {

at::Tensor attend_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionMask& mask, Dropout dropout,
                               const ForwardContext& context) {
  if (!context.training || dropout.probability == 0)
    return at::scaled_dot_product_attention(
        q, k, v, mask.mask.defined() ? std::optional(mask.mask) : std::nullopt, /*dropout_p=*/0,
        mask.causal, mask.scale, mask.shares_keys);
  const std::int64_t shared = mask.shares_keys ? q.size(-3) / k.size(-3) : 1;
  const auto for_queries = [&](const at::Tensor& x) {
    return shared == 1 ? x : x.repeat_interleave(shared, -3);
  };
  const double scale = mask.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  constexpr double kUnseen = -std::numeric_limits<double>::infinity();
  at::Tensor scores = at::matmul(q, for_queries(k).transpose(-2, -1)) * scale;
  if (mask.causal)
    scores = scores.masked_fill(
        at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool)).tril().logical_not(),
        kUnseen);
  if (mask.mask.defined())
    scores = mask.mask.scalar_type() == at::kBool
                 ? scores.masked_fill(mask.mask.logical_not(), kUnseen)
                 : scores + mask.mask;
  const at::Tensor kept = strata::dropout(at::softmax(scores, -1).contiguous(), dropout, context);
  return at::matmul(kept, for_queries(v));
}

}  // namespace strata
