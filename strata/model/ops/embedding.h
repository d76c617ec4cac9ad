/// Looks rows up: token embedding plus learned positions.
///
/// The gradient is added row by row in ascending position, the same bits for any number of threads.
///
/// Shapes  tokens [B, T] int64, weight [V, C], positions [>= T, C] -> [B, T, C].
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight,
                     const at::Tensor& positions);

}  // namespace strata
