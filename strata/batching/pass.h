/// Describes one forward pass over new tokens of several sequences, whose keys and values lie in
/// pages.
///
/// A page holds the keys and values of `page_tokens` tokens, for every layer. A sequence owns a
/// list of pages; its token i lies in page i / page_tokens of that list. Sequences with a common
/// beginning may list the same pages there.
///
/// Source   Kwon et al. 2023 (paged attention), Agrawal et al. 2023 (chunked prefill).
#pragma once

#include <cstdint>
#include <vector>

namespace strata {

/// The new tokens of one sequence.
struct PassTokens {
  std::vector<std::int64_t> tokens;  ///< at least one
  std::int64_t position = 0;         ///< of the first of them in the sequence
  std::vector<std::int32_t> pages;   ///< of the sequence, up to the page of its last new token
  std::int64_t logits = 1;           ///< how many of the last new tokens need logits; may be 0
};

/// The sequences of a pass, in the order of their rows. A sequence is in a pass at most once.
using Pass = std::vector<PassTokens>;

}  // namespace strata
