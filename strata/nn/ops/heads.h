/// Views packed projections as heads of queries, keys and values.
///
/// Shapes  packed [B, T, (Hq + 2 Hkv) width], queries first <-> [B, T, heads, width]
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

struct Heads {
  at::Tensor q, k, v;
};

struct HeadSizes {
  std::int64_t width = 0;
  std::int64_t queries_per_key = 1;  ///< Hq / Hkv
  std::int64_t key_heads = 0;        ///< Hkv
};

inline Heads split_heads(const at::Tensor& packed, const HeadSizes& sizes) {
  // Fewer than sizes.key_heads if other ranks have some.
  const std::int64_t keys = packed.size(2) / sizes.width / (sizes.queries_per_key + 2);
  const std::int64_t queries = keys * sizes.queries_per_key;
  const auto cut = [&](std::int64_t first, std::int64_t heads) {
    return packed.narrow(2, first * sizes.width, heads * sizes.width)
        .view({packed.size(0), packed.size(1), heads, sizes.width});
  };
  return {cut(0, queries), cut(queries, keys), cut(queries + keys, keys)};
}

}  // namespace strata
