/// Shows the tiles of a weight in 8 or 4 bits (kernels/quantised_tiles.h) as a tensor that products
/// accept.
///
/// Tiles lie in a flat buffer of fp32 like other weights, so that stores move and count them
/// without knowing what they are. The tensor has the weight's sizes [out, in] and the type int8, or
/// uint8 for 4 bits, but its elements have the order of tiles: only ProductPrimitives::product() of
/// a host reads it, with x, bias and result of fp32.
///
/// Errors  InternalError: another tensor than quantised_weight() makes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "strata/nn/kernels/quantised_rows.h"

namespace strata {

/// The number of fp32 elements that the tiles of a weight occupy.
std::int64_t quantised_words(kernels::QuantisedType type, std::int64_t out, std::int64_t in);

/// `words` [quantised_words(type, out, in)] fp32, whose bytes the result shares.
at::Tensor quantised_weight(kernels::QuantisedType type, const at::Tensor& words, std::int64_t out,
                            std::int64_t in);

bool is_quantised(const at::Tensor& weight);
kernels::QuantisedType quantised_type(const at::Tensor& weight);

/// The tile that begins with this column of the output, a multiple of kernels::kTileColumns.
const std::byte* quantised_tiles(const at::Tensor& weight, std::int64_t column = 0);

}  // namespace strata
