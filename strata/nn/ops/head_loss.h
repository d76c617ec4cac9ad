/// Projects to the vocabulary and computes the cross-entropy in chunks of rows: the full logits of
/// a micro-batch never exist.
///
/// In training the forward only keeps its input. The backward computes the logits of a chunk once,
/// and from them the loss, the gradient at x and the weight gradient: three GEMMs, where a forward
/// that saves nothing would need four. The loss is therefore known after the backward. Outside of
/// training the loss is computed at once, without gradients.
///
/// Tensor-parallel ranks divide the vocabulary: per chunk they exchange the rows' largest logits
/// and add up two sums per row (three with label smoothing). Every rank then knows the whole loss,
/// and the backward needs only the sum of the ranks' gradients at x.
///
/// Source  chunked cross-entropy: Hsu et al. 2024 (Liger Kernel); the deferred forward is Strata's;
///         divided vocabulary: Shoeybi et al. 2019; label smoothing: Szegedy et al. 2016, PyTorch's
///         form.
/// Shapes  x [..., C] contiguous, weight [V, C], both fp32, bf16 or fp16, targets [...] int64
///         (kIgnoredTarget: no loss). Split: x [B, T or T/n, C], weight [ceil(V/n), C], targets [B,
///         T]. The loss is fp32, computed from the logits' fp32 values.
/// Cost    transient: head_chunk_rows() * V fp32; in 16 bit half as much again, and a weight
///         gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/nn/graph/layer.h"

namespace strata {

/// Adds the fp64 sum of token losses to context.loss, on every rank. `classes`: V, which a rank's
/// slice of the weight does not show. Returns a placeholder whose backward, with any gradient,
/// computes the gradients of context.loss_scale * (that sum).
at::Tensor head_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                     std::int64_t classes, const ForwardContext& context);

}  // namespace strata
