/// Collects the keys or values of a text from its pages, for kernels that read them in one piece.
///
/// Shapes  pool [pages, heads, page_tokens, width] -> [1, heads, positions, width].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/nn/primitives/attention.h"

namespace strata {

/// The positions up to the last of `tokens` new ones.
at::Tensor gathered(const at::Tensor& pool, const PagedText& text, std::int64_t tokens);

}  // namespace strata
