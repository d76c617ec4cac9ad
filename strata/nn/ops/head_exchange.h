/// Exchanges tokens of all heads for all tokens of some heads, and back, between the ranks of `cp`
/// (Ulysses): a rank then attends alone.
///
/// The ranks divide the heads of keys in order, evenly if they can: their counts differ by at most
/// one. Heads of queries go with the heads of keys that they share.
///
/// Source  Jacobs et al. 2023 (DeepSpeed-Ulysses).
/// Shapes  packed parts along the last dimension: `parts` heads of each part for one head of keys,
///         {queries_per_key, 1, 1} for queries, keys and values. A rank's tokens [B, T/n, heads *
///         width] <-> a rank's heads [B, T, own heads * width].
/// Cost    a rank sends (n - 1) / n of its elements.
/// Threads collective over the ranks of `cp`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/comm/context_parallel.h"

namespace strata {

struct PackedHeads {
  std::int64_t key_heads = 0;  ///< of all ranks
  std::int64_t width = 0;      ///< of a head
  std::vector<std::int64_t> parts = {};
};

/// The heads of keys [first, first + count) that a rank attends with.
struct OwnHeads {
  std::int64_t first = 0, count = 0;
};
OwnHeads own_heads(std::int64_t key_heads, int rank, int ranks);

at::Tensor tokens_to_heads(const at::Tensor& x, const PackedHeads& heads,
                           const ContextParallel& group);
at::Tensor heads_to_tokens(const at::Tensor& x, const PackedHeads& heads,
                           const ContextParallel& group);

}  // namespace strata
