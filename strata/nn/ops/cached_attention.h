/// Attends from new tokens to all tokens so far, whose keys and values a cache keeps: decoding.
///
/// Shapes  q [B, T, Hq, width], k and v [B, T, Hkv, width], where Hkv divides Hq -> [B, T, Hq width].
///         The cache: keys, then values, [B, Hkv, positions, width] each; the T new tokens are
///         written at its position. fp32, bf16 or fp16.
/// Cost    reads the keys and values so far once; keeps nothing for a backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/nn/layer.h"

namespace strata {

/// Queries, keys and values [B, T, heads, width], views of packed projections.
struct AttentionHeads {
  at::Tensor q, k, v;
};

/// Shapes  qkv [B, T, (Hq + 2 Hkv) width], queries first, Hq = queries_per_key * Hkv.
AttentionHeads split_heads(const at::Tensor& qkv, std::int64_t queries_per_key, std::int64_t width);

/// What Layer::cache() returns for a layer that attends so.
std::vector<TensorSpec> key_value_cache(std::int64_t samples, std::int64_t heads,
                                        std::int64_t positions, std::int64_t width,
                                        at::ScalarType dtype);

at::Tensor cached_attention(const AttentionHeads& heads, const LayerCache& cache);

}  // namespace strata
