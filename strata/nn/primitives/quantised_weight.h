/// Shows the 8-bit tiles of a weight (kernels/int8_columns.h) as a tensor that products accept.
///
/// Tiles lie in a flat buffer of fp32 like other weights, so that stores move and count them
/// without knowing what they are. The tensor has the weight's sizes [out, in] and the type int8,
/// but its elements have the order of tiles: only ProductPrimitives::product() of a host reads it,
/// with x, bias and result of fp32.
///
/// Errors  InternalError: another tensor than int8_weight() makes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace strata {

/// The number of fp32 elements that the tiles of a weight occupy.
std::int64_t int8_words(std::int64_t out, std::int64_t in);

/// `words` [int8_words(out, in)] fp32, whose bytes the result shares.
at::Tensor int8_weight(const at::Tensor& words, std::int64_t out, std::int64_t in);

bool is_int8_weight(const at::Tensor& weight);

/// The tile that begins with this column of the output, a multiple of kernels::kTileColumns.
const std::byte* int8_tiles(const at::Tensor& weight, std::int64_t column = 0);

}  // namespace strata
