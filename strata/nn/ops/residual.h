/// Adds to the residual stream, and drops activations by a mask that is drawn by counter and never
/// stored.
///
/// The mask depends on (seed, step, position of the sample in the global mini-batch, layer, site,
/// element): the same on any mesh, and again in backward and recompute. With sequence parallelism x
/// is the rank's part of the sequence, and elements count from the start of the whole; with `cp` it
/// is the tokens of two chunks.
///
/// Source  Srivastava et al. 2014; Salmon et al. 2011 (Philox).
/// Shapes  [samples, ...] contiguous, fp32, bf16 or fp16; a rank's part of a sample: a multiple of
///         4 elements.
#pragma once

#include <ATen/core/Tensor.h>

#include "strata/nn/graph/layer.h"

namespace strata {

/// The uses of dropout that a layer can have: their masks differ.
inline constexpr int kDropoutSites = 16;

/// One use of dropout in a layer, identified by `site`, below kDropoutSites.
struct Dropout {
  double probability = 0;
  int site = 0;
};

/// dropout(x); x itself when not training or the probability is 0.
at::Tensor dropout(const at::Tensor& x, Dropout dropout, const ForwardContext& context);

/// residual + dropout(x), in one pass.
at::Tensor residual_dropout(const at::Tensor& residual, const at::Tensor& x, Dropout dropout,
                            const ForwardContext& context);

at::Tensor residual_add(const at::Tensor& residual, const at::Tensor& x);

}  // namespace strata
