/// Projects to the vocabulary and takes the cross-entropy, in chunks of rows: the full logits of a
/// micro-batch never exist.
///
/// In training the forward does nothing but keep its input. The backward makes the logits of a
/// chunk once and takes from them the loss, the gradient at x and the weight gradient: three GEMMs,
/// where saving nothing and coming back would need four. The loss is therefore known after the
/// backward. Otherwise the loss is computed at once, two passes less.
///
/// Tensor-parallel ranks divide the vocabulary: per chunk they agree on the rows' largest logits
/// and add up two sums a row (three with label smoothing); every rank then knows the whole loss,
/// and the backward needs nothing more of the others but the sum of the gradients at x.
///
/// Source  chunked cross-entropy: Hsu et al. 2024 (Liger Kernel); the deferred forward is ours;
///         divided vocabulary: Shoeybi et al. 2019; label smoothing: Szegedy et al. 2016, PyTorch's
///         form.
/// Shapes  x [..., C] contiguous, weight [V, C], both fp32, bf16 or fp16, targets [...] int64
///         (kIgnoredTarget: no loss). Split: x [B, T or T/n, C], weight [ceil(V/n), C], targets
///         [B, T]. The loss is fp32, made of the logits' fp32 values.
/// Cost    transient: head_chunk_rows() * V fp32; in 16 bit half of it more, and a weight gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/nn/graph/layer.h"

namespace strata {

/// Adds the fp64 sum of token losses to context.loss, on every rank. `classes`: V, which a rank's
/// slice of the weight doesn't tell. The result is a placeholder whose backward,
/// with any gradient, yields the gradients of context.loss_scale * (that sum).
at::Tensor head_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                     std::int64_t classes, const ForwardContext& context);

}  // namespace strata
