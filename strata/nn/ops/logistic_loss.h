/// Computes the binary cross-entropy of scores, given as logits, by the rule of all losses: the sum
/// over the samples that count, times context.loss_scale.
///
/// Label smoothing moves labels by its share towards one half.
///
/// Shapes  logits [B] fp32; labels [B] fp32 or int64, in [0, 1], or below 0: no loss.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/nn/graph/layer.h"

namespace strata {

/// Adds the fp64 sum to context.loss, in training when the backward runs, like head_loss; outside
/// of training it also appends the scores to context.loss->scores. Returns a placeholder whose
/// backward, with any gradient, computes the gradients of context.loss_scale * (that sum).
at::Tensor logistic_loss(const at::Tensor& logits, const at::Tensor& labels,
                         const ForwardContext& context);

}  // namespace strata
