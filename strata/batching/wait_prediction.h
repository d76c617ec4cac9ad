/// Predicts when waiting sequences get pages, from the tokens that the sequences before them may
/// still need.
///
/// It assumes that every sequence generates as many tokens as it may, so none starts later than
/// predicted.
///
/// Units    passes from now; pages.
/// Threads  any.
/// Cost     O((R + W) log R) for R running and W waiting sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// What a sequence needs until it ends.
struct SequenceDemand {
  std::int64_t pages = 0;          ///< when it ends, the largest number
  std::int64_t prompt_tokens = 0;  ///< not yet computed
  std::int64_t new_tokens = 0;     ///< not yet generated
};

struct BatchCapacity {
  std::int64_t pages = 0;
  std::int64_t sequences = 0;    ///< at once
  std::int64_t pass_tokens = 0;  ///< of prompts
};

/// Returns the pass before which each waiting sequence starts, first come first served.
std::vector<std::int64_t> predict_starts(const BatchCapacity& capacity,
                                         std::span<const SequenceDemand> running,
                                         std::span<const SequenceDemand> waiting);

}  // namespace strata
