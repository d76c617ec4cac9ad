#include "strata/exported/attention_dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <limits>

namespace strata {

at::Tensor dropout_of_samples(const at::Tensor& x, std::int64_t samples, Dropout dropout,
                              const ForwardContext& context) {
  if (!context.training || dropout.probability == 0) return x;
  return strata::dropout(x.reshape({samples, -1}).contiguous(), dropout, context).view(x.sizes());
}

at::Tensor attend_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionForm& form, std::int64_t samples, Dropout dropout,
                               const ForwardContext& context) {
  if (!context.training || dropout.probability == 0)
    return at::scaled_dot_product_attention(
        q, k, v, form.mask.defined() ? std::optional(form.mask) : std::nullopt, /*dropout_p=*/0,
        form.causal, form.scale, form.shares_keys);
  const std::int64_t shared = form.shares_keys ? q.size(-3) / k.size(-3) : 1;
  const auto for_queries = [&](const at::Tensor& x) {
    return shared == 1 ? x : x.repeat_interleave(shared, -3);
  };
  const double scale = form.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  constexpr double kUnseen = -std::numeric_limits<double>::infinity();
  at::Tensor scores = at::matmul(q, for_queries(k).transpose(-2, -1)) * scale;
  if (form.causal)
    scores = scores.masked_fill(
        at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool)).tril().logical_not(),
        kUnseen);
  if (form.mask.defined())
    scores = form.mask.scalar_type() == at::kBool
                 ? scores.masked_fill(form.mask.logical_not(), kUnseen)
                 : scores + form.mask;
  // A row that sees nothing is 0, as in the fused kernel.
  const at::Tensor kept =
      dropout_of_samples(at::_safe_softmax(scores, -1), samples, dropout, context);
  return at::matmul(kept, for_queries(v));
}

}  // namespace strata
