/// Normalises rows: LayerNorm, or RMSNorm if there is no bias. Saves its input and one or two numbers
/// a row.
///
/// Source  Ba et al. 2016; Zhang & Sennrich 2019. Weight gradients by our own column sums, in row
///         order: ATen's depend on the threads.
/// Shapes  x [..., C] contiguous, gain and bias [C]; all fp32, bf16 or fp16, gradients of leaves
///         and statistics fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/nn/primitives.h"

namespace strata {

at::Tensor normalise(const at::Tensor& x, const Norm& norm);

/// The gradient at x; adds those of the norm's weights to their leaves. Overwrites dy. For operators
/// that a norm is a part of.
at::Tensor norm_backward(const at::Tensor& x, at::Tensor dy, const Norm& norm,
                         const NormStatistics& statistics);

}  // namespace strata
