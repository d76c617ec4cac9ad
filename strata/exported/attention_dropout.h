/// Attends with dropout of the probabilities, drawn by counter (nn/ops/residual.h): what
/// scaled_dot_product_attention does, with random numbers that do not depend on the mesh.
///
/// Shapes  q [B, heads, T, width], k, v [B, key heads, S, width]; the first dimension may also
///         join B and others. mask broadcast to [B, heads, T, S], booleans (false: not seen) or
///         summands.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "strata/nn/ops/residual.h"

namespace strata {

struct AttentionForm {
  at::Tensor mask;  ///< undefined: none
  bool causal = false;
  std::optional<double> scale = {};  ///< of products; default: 1 / sqrt(width)
  bool shares_keys = false;          ///< heads of queries may share heads of keys
};

/// dropout() of a value whose first dimension joins `samples` with others, and which need not be
/// contiguous.
at::Tensor dropout_of_samples(const at::Tensor& x, std::int64_t samples, Dropout dropout,
                              const ForwardContext& context);

/// Without dropout, ATen's fused attention.
at::Tensor attend_with_dropout(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionForm& form, std::int64_t samples, Dropout dropout,
                               const ForwardContext& context);

}  // namespace strata
