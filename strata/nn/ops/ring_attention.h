/// Attends causally where each rank of `cp` has some tokens of every sample: keys and values go
/// from rank to rank, and a rank attends to those of one chunk at a time.
///
/// Every block of queries attends to blocks of keys in descending order, its own first, and the
/// gradient of a block of keys is the sum over blocks of queries from the middle of the sequence
/// outwards. Both orders depend on the length and the size of blocks only, so equal blocks give
/// equal bits on any number of ranks, one included. They are also the orders in which chunks pass
/// the ranks: all ranks work from the first moment, and each at another chunk.
///
/// A late chunk starts at its owner, an early one at the last rank, and both descend the ranks. In
/// backward the gradients of a chunk's keys and values descend with it, and rank 0 sends them to
/// their owner. Backward runs by groups of heads: while one group passes the other ranks, a rank
/// works on the next one.
///
/// Source  Liu et al. 2023 (ring attention); the orders are Strata's.
/// Shapes  q [B, T/n, heads, width], k and v with the same or fewer heads; y [B, T/n, heads *
///         width] of q's type, log_sum [B, heads, T/n].
/// Cost    a rank sends the keys and values of at most 2n - 1 chunks, in backward also as many
///         gradients, in fp32. Transient: y, or dq of a group, in fp32; keys and values of a chunk,
///         of the rank's early chunk until it is its turn, and of at most two on their way.
/// Threads collective over the ranks of `cp`.
#pragma once

#include "strata/comm/context_parallel.h"
#include "strata/nn/ops/heads.h"
#include "strata/nn/primitives/attention.h"

namespace strata {

/// The groups of heads in backward, unless there are fewer heads of keys. More groups make the wait
/// of ranks for the first and the last group shorter, and messages smaller.
inline constexpr std::int64_t kRingHeadGroups = 4;

Attended ring_attend(const Heads& heads, const ContextParallel& group);

/// Writes the gradients to the tensors of `gradients`.
void ring_attend_gradient(const Heads& heads, const Attended& attended, const at::Tensor& dy,
                          const Heads& gradients, const ContextParallel& group);

}  // namespace strata
