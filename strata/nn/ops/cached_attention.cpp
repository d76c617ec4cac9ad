// One new token sees every position, so ATen's kernel runs without a mask; the first tokens of a
// text are causal from the start; new tokens behind old ones need a mask, for the kernel counts
// causality from the first key.
#include "strata/nn/ops/cached_attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/full.h>

#include <limits>
#include <optional>

#include "strata/base/errors.h"

namespace strata {
namespace {

// 0 where token i, at `position` + i, sees position j; else -infinity.
at::Tensor causal_mask(std::int64_t tokens, std::int64_t position, const at::Tensor& like) {
  const at::Tensor mask = at::full({tokens, position + tokens},
                                   -std::numeric_limits<double>::infinity(), like.options());
  return mask.triu_(position + 1);
}

}  // namespace

AttentionHeads split_heads(const at::Tensor& qkv, std::int64_t queries_per_key,
                           std::int64_t width) {
  const std::int64_t kv_heads = qkv.size(2) / width / (queries_per_key + 2);
  const auto cut = [&](std::int64_t first, std::int64_t heads) {
    return qkv.narrow(2, first * width, heads * width)
        .view({qkv.size(0), qkv.size(1), heads, width});
  };
  const std::int64_t queries = kv_heads * queries_per_key;
  return {cut(0, queries), cut(queries, kv_heads), cut(queries + kv_heads, kv_heads)};
}

std::vector<TensorSpec> key_value_cache(std::int64_t samples, std::int64_t heads,
                                        std::int64_t positions, std::int64_t width,
                                        at::ScalarType dtype) {
  return std::vector<TensorSpec>(2, {.shape = {samples, heads, positions, width}, .dtype = dtype});
}

at::Tensor cached_attention(const AttentionHeads& heads, const LayerCache& cache) {
  STRATA_CHECK_EQ(cache.tensors.size(), std::size_t{2}, "nn.cached_attention");
  const at::Tensor &keys = cache.tensors[0], &values = cache.tensors[1];
  const std::int64_t tokens = heads.q.size(1), seen = cache.position + tokens;
  STRATA_CHECK(seen <= keys.size(2), "nn.cached_attention");
  keys.narrow(2, cache.position, tokens).copy_(heads.k.transpose(1, 2));
  values.narrow(2, cache.position, tokens).copy_(heads.v.transpose(1, 2));
  std::optional<at::Tensor> mask;
  if (tokens > 1 && cache.position > 0) mask = causal_mask(tokens, cache.position, heads.q);
  const at::Tensor y = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      heads.q.transpose(1, 2), keys.narrow(2, 0, seen), values.narrow(2, 0, seen),
      /*dropout_p=*/0.0, /*is_causal=*/tokens > 1 && !mask, mask));
  return y.transpose(1, 2).reshape({heads.q.size(0), tokens, heads.q.size(2) * heads.q.size(3)});
}

}  // namespace strata
