/// Attends causally where each rank of `cp` has some tokens of every sample: keys and values go
/// from rank to rank, and a rank never has those of more than two chunks.
///
/// Every block of queries attends to blocks of keys in descending order, its own first, and the
/// gradient of a block of keys is the sum over blocks of queries from the middle of the sequence
/// outwards. Both orders depend on the length and the size of blocks only, so equal blocks give
/// equal bits on any number of ranks, one included. They are also the orders in which chunks pass
/// the ranks: all ranks work from the first moment, and each at another chunk.
///
/// Chunk j starts at the last rank, or, if it is a late one, at its owner, and descends the ranks;
/// in backward the gradients of its keys and values descend with it and go home from rank 0.
/// Backward runs by groups of heads, so that a rank works on one while another group passes.
///
/// Source  Liu et al. 2023 (ring attention); the orders are Strata's.
/// Shapes  q [B, T/n, heads, width], k and v with the same or fewer heads; y [B, T/n, heads *
///         width] of q's type, log_sum [B, heads, T/n].
/// Cost    a rank sends the keys and values of at most 2n - 1 chunks, in backward twice as many
///         elements more, in fp32. Transient: y, or dq, in fp32; the rank's own keys and values,
///         and another chunk's.
/// Threads collective over the ranks of `cp`.
#pragma once

#include "strata/comm/context_parallel.h"
#include "strata/nn/ops/heads.h"
#include "strata/nn/primitives/attention.h"

namespace strata {

/// Backward passes the ranks in so many groups of heads, or one for each head of keys: while the
/// last group passes, ranks at the end of the line wait for about 1 / kRingHeadGroups of the work.
inline constexpr std::int64_t kRingHeadGroups = 4;

Attended ring_attend(const Heads& heads, const ContextParallel& group);

/// Writes the gradients to the tensors of `gradients`.
void ring_attend_gradient(const Heads& heads, const Attended& attended, const at::Tensor& dy,
                          const Heads& gradients, const ContextParallel& group);

}  // namespace strata
