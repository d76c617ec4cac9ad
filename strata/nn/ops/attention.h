/// Attends causally on packed projections, without copies: heads of queries may share heads of keys
/// and values, positions may be rotary, heads may be normalised first, and keys and values of
/// earlier tokens may come from a cache.
///
/// Source  Dao et al. 2022 (FlashAttention); Ainslie et al. 2023 (grouped queries); norms of
///         queries and keys as in Qwen 3.
/// Shapes  qkv [B, T, (Hq + 2 Hkv) width] contiguous, queries first, Hq = queries_per_key * Hkv ->
///         [B, T, Hq width]; fp32, bf16 or fp16, gradients of gains fp32. Under tensor parallelism
///         only a rank's own heads, whose number follows from qkv's width.
/// Cost    saves qkv, the output and one number per row and query head; with norms also one per row
///         and head, and transient copies of queries and keys. Decoding reads all earlier keys and
///         values once and saves nothing.
/// Errors  InternalError from attend(): a text has too few pages in context.cache, or more tokens
///         than a sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "strata/nn/graph/layer.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/rope.h"
#include "strata/nn/primitives/attention_pattern.h"

namespace strata {

struct Attention {
  std::int64_t head_width = 0;
  std::int64_t queries_per_key = 1;  ///< Hq / Hkv
  std::optional<RopeOptions> rope = {};
  /// Gains of an RMSNorm of every head of queries and keys, [width]; undefined: no norm.
  at::Tensor query_gain = {}, key_gain = {};
  double norm_epsilon = 1e-6;
  /// The tokens that heads attend to; null: all earlier ones. Outlives the backward.
  const AttentionPattern* pattern = nullptr;
  /// Decoding: tokens of a whole sample, at least as many as the longest text has. A host adds up
  /// in the order in which it attends within such a sample.
  std::int64_t sample = 0;
};

/// With rotary positions and without norms this turns queries and keys in place: it overwrites qkv,
/// which the caller must not read afterwards.
///
/// A tensor-parallel rank (context.tensor) has some of the heads: it adds up the gains' gradients
/// with the other ranks, except with sequence parallelism, where this happens once per step
/// (WeightSpec::partial_gradient). With context.cache the inputs are the new tokens of several
/// sequences: each attends to the tokens of its own sequence, whose keys and values the cache
/// holds, and adds its own.
at::Tensor attend(const at::Tensor& qkv, const Attention& attention, const ForwardContext& context);

/// linear(attend(norm_linear(x))): the attention of a transformer block. By context.recompute the
/// backward computes again what lies between the two products.
at::Tensor self_attention(const at::Tensor& x, const Norm& norm, const Affine& in,
                          const Attention& attention, const Affine& out,
                          const ForwardContext& context);

/// The result of Layer::cache() for a layer that calls attend().
/// Shapes  keys, then values, [pages, heads, page_tokens, width] each.
std::vector<TensorSpec> key_value_cache(std::int64_t pages, std::int64_t heads,
                                        std::int64_t page_tokens, std::int64_t width,
                                        at::ScalarType dtype);

}  // namespace strata
