/// Attends causally: ATen's fused attention on the packed projections, without copies around it.
///
/// Source  Dao et al. 2022 (FlashAttention), ATen's CPU kernel.
/// Shapes  qkv [B, T, 3 C], C = heads * head width -> [B, T, C]; contiguous, fp32, bf16 or
///         fp16.
/// Cost    saves qkv, the output and one number a row and head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

}  // namespace strata
