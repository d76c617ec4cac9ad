/// Attends causally to the earlier tokens of a sample, all of them or those of a pattern. Other
/// ranks may have some of them (axis `cp`): the ranks attend in a ring (ring_attention.h), or after
/// an exchange of tokens for heads (head_exchange.h).
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

/// Which tokens the heads of a rank attend to, and which ranks have them. The pointers outlive the
/// backward.
struct AttentionScope {
  const ContextParallel* group = nullptr;     ///< null: the rank has whole samples
  const AttentionPattern* pattern = nullptr;  ///< null: all earlier tokens. Not in a ring
  std::int64_t first_head = 0;                ///< of the rank's heads of queries, in the model
};

/// Packed operands for packed heads; the same tensor unless ranks exchange heads.
at::Tensor packed_operands(const at::Tensor& packed, const HeadSizes& sizes,
                           const ContextParallel* group);
Heads operands(const Heads& heads, const HeadSizes& sizes, const ContextParallel* group);

/// The result for the operands: of the shapes of AttentionPrimitives.
Attended attend_operands(const Heads& operands, const HeadSizes& sizes,
                         const AttentionScope& scope);
/// y of the rank's own tokens.
at::Tensor own_output(const Attended& attended, const HeadSizes& sizes,
                      const ContextParallel* group);

/// Writes the gradients at the rank's own heads, for dy, the gradient at own_output().
void attend_operands_gradient(const Heads& operands, const Attended& attended, const at::Tensor& dy,
                              const Heads& gradients, const HeadSizes& sizes,
                              const AttentionScope& scope);

}  // namespace strata
