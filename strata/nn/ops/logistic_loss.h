/// Takes the binary cross-entropy of scores, given as logits, by the one loss rule: the sum over the
/// samples that count, times context.loss_scale.
///
/// Label smoothing moves labels by its share towards one half.
///
/// Shapes  logits [B] fp32; labels [B] fp32 or int64, in [0, 1], or below 0: no loss.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/nn/graph/layer.h"

namespace strata {

/// Adds the fp64 sum to context.loss, in training when the backward runs, as head_loss does; outside
/// of training also the scores to its list. The result is a placeholder whose backward, with any
/// gradient, yields the gradients of context.loss_scale * (that sum).
at::Tensor logistic_loss(const at::Tensor& logits, const at::Tensor& labels,
                         const ForwardContext& context);

}  // namespace strata
