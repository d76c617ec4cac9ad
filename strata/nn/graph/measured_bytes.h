/// Measures the memory of one forward and backward of a layer by running it once with its own
/// account.
///
/// Shapes  `inputs`: those of a real micro-batch. Nothing is extrapolated: allocations of small
///         tensors don't scale.
/// Cost    one forward and backward on the calling thread, and the layer's weights and gradients.
///         Covers the work of one rank that has whole weights: a layer that tensor-parallel ranks
///         divide states its bytes. `split`: of samples of which `inputs` are a rank's part.
/// Errors  exceptions of the layer.
#pragma once

#include <span>

#include "strata/layout/context_split.h"
#include "strata/nn/graph/layer.h"

namespace strata {

LayerBytes measured_bytes(const Layer& layer, std::span<const TensorSpec> inputs,
                          Recompute recompute, const ContextSplit& split = {});

}  // namespace strata
