/// Attends causally to all earlier tokens of a sample, of which other ranks may have some (axis
/// `cp`): in a ring (ring_attention.h), or after an exchange of tokens for heads
/// (head_exchange.h). With a null group the rank has whole samples.
///
/// A rank attends with its operands: its own heads, or, if ranks exchange heads, some heads of all
/// tokens.
///
/// Shapes  heads [B, T/n, heads, width]; y [B, T/n, heads * width].
/// Threads collective over the ranks of `cp`.
#pragma once

#include "strata/comm/context_parallel.h"
#include "strata/nn/ops/heads.h"
#include "strata/nn/primitives/attention.h"

namespace strata {

/// Packed operands for packed heads; the same tensor unless ranks exchange heads.
at::Tensor packed_operands(const at::Tensor& packed, const HeadSizes& sizes,
                           const ContextParallel* group);
Heads operands(const Heads& heads, const HeadSizes& sizes, const ContextParallel* group);

/// The result for the operands: of the shapes of AttentionPrimitives.
Attended attend_operands(const Heads& operands, const ContextParallel* group);
/// y of the rank's own tokens.
at::Tensor own_output(const Attended& attended, const HeadSizes& sizes,
                      const ContextParallel* group);

/// Writes the gradients at the rank's own heads, for dy, the gradient at own_output().
void attend_operands_gradient(const Heads& operands, const Attended& attended, const at::Tensor& dy,
                              const Heads& gradients, const HeadSizes& sizes,
                              const ContextParallel* group);

}  // namespace strata
