/// Turns queries and keys by their positions, in place.
///
/// Source  Su et al. 2021, in the layout of Hugging Face's weights: element i of a head is turned
///         against element i + width / 2.
/// Shapes  x [B, T, heads, width] fp32, bf16 or fp16, the heads of a token side by side; table
///         [T, width] fp32: the cosines of a position, then its sines.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/nn/ops/rope_options.h"
#include "strata/nn/primitives.h"

namespace strata {

/// Radians a position for each of the width / 2 pairs.
std::vector<float> rope_frequencies(const RopeOptions& options, std::int64_t width);

/// Of the positions [first, first + length).
at::Tensor rope_table(const RopeOptions& options, std::int64_t width, std::int64_t length,
                      std::int64_t first = 0);

void rope(const at::Tensor& x, const at::Tensor& table, RopeTurn turn);

}  // namespace strata
