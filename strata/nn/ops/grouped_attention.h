/// Attends causally with rotary positions and query heads that share key and value heads.
///
/// Source  Ainslie et al. 2023 (grouped queries), ATen's fused CPU kernel, which reads the shared
///         heads in place; per-head norms of queries and keys as in Qwen 3.
/// Shapes  qkv [B, T, (Hq + 2 Hkv) width] contiguous, queries first -> [B, T, Hq width]; fp32, bf16
///         or fp16, gradients of gains fp32. Under tensor parallelism a rank's own heads, found
///         from qkv's width.
/// Cost    saves qkv, the output and one number a row and query head; with norms also one a row and
///         head, and transient copies of queries and keys.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/nn/ops/rope_options.h"

namespace strata {

class TensorParallel;

struct GroupedAttention {
  std::int64_t queries_per_key = 1;  ///< Hq / Hkv
  std::int64_t head_width = 0;
  RopeOptions rope;
  double norm_epsilon = 1e-6;  ///< of the norms of queries and keys
};

/// Overwrites qkv: queries and keys are turned in place. Nobody else may read it.
at::Tensor grouped_attention(const at::Tensor& qkv, const GroupedAttention& options);

/// The same behind an RMSNorm of every head of queries and keys; leaves qkv as it is. A rank has
/// some of the heads: it adds up the gains' gradients with the others, but with sequence
/// parallelism, where that happens once a step (WeightSpec::partial_gradient).
/// Shapes  gains [width].
at::Tensor normed_grouped_attention(const at::Tensor& qkv, const at::Tensor& query_gain,
                                    const at::Tensor& key_gain, const GroupedAttention& options,
                                    const TensorParallel* group = nullptr);

}  // namespace strata
