/// Combines features of a sample: dot products of all pairs, crosses with the input, or
/// concatenation.
///
/// Source  pairwise dots: Naumov et al. 2019 (DLRM); crosses: Wang et al. 2021 (DCN-v2).
/// Shapes  [B, ...] contiguous, fp32.
/// Cost    pairwise_dots and cross save their inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

/// [first | x_i . x_j for j < i] of n vectors of `width` elements, n (n - 1) / 2 products: x_0 is
/// `first` [B, width], the others are in `rest`. If `first` is undefined, all are in `rest`.
at::Tensor pairwise_dots(const at::Tensor& first, const at::Tensor& rest, std::int64_t width);

/// x0 * h + x, where h is an affine map of x.
at::Tensor cross(const at::Tensor& x0, const at::Tensor& h, const at::Tensor& x);

/// [B, C] and [B, D] -> [B, C + D]
at::Tensor side_by_side(const at::Tensor& a, const at::Tensor& b);

}  // namespace strata
