/// Looks up rows: the tokens' embeddings, without or with learned positions.
///
/// The gradient is added row by row in ascending position: the same bits for any number of threads.
///
/// A tensor-parallel rank has a slice of the rows; tokens of other ranks count as zero until the
/// ranks' results are summed. Positions are added after the sum, on the rank's part of the
/// sequence.
///
/// A rank of `cp` has the tokens of two chunks, and adds the positions of these.
///
/// Shapes  tokens [B, T] int64, weight [V, C] or the slice [ceil(V/n), C], positions of
///         whole samples [>= T, C], both fp32, bf16 or fp16, their gradients fp32 -> [B, T, C], or
///         [B, T/n, C] with sequence parallelism.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

class ContextParallel;
class TensorParallel;

at::Tensor token_embedding(const at::Tensor& tokens, const at::Tensor& weight,
                           const TensorParallel* group = nullptr);

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight,
                     const at::Tensor& positions, const TensorParallel* group = nullptr,
                     const ContextParallel* context_parallel = nullptr);

}  // namespace strata
