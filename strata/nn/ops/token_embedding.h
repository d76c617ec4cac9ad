/// Looks the rows of tokens up in a vocabulary that tensor-parallel ranks share out.
///
/// A rank's rows outside its slice count as zero; the ranks' are added. The gradient is added row
/// by row in ascending position, the same bits for any number of threads.
///
/// Shapes  tokens [B, T] int64, weight [V of this rank, C] fp32, bf16 or fp16, its gradient fp32
///         -> [B, T, C] of the weight's dtype.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

class TensorParallel;

at::Tensor token_embedding(const at::Tensor& tokens, const at::Tensor& weight,
                           const TensorParallel* group = nullptr);

}  // namespace strata
