/// Describes one forward pass over new tokens of several sequences, whose keys and values lie in
/// pages.
///
/// A page holds the keys and values of `page_tokens` tokens, for every layer. A sequence owns a
/// list of pages; its token i lies in page i / page_tokens of that list. Sequences with a common
/// beginning may list the same pages there.
///
/// Pages without a sequence may also lie in lower tiers: host memory or a disk. Their numbers
/// follow those of the device's pages: first those of the host, then those of the disk.
///
/// Source   Kwon et al. 2023 (paged attention), Agrawal et al. 2023 (chunked prefill).
#pragma once

#include <cstdint>
#include <vector>

namespace strata {

/// The pages of each rank.
struct PageRoom {
  std::int64_t page_tokens = 1;  ///< tokens of a page
  std::int64_t pages = 1;        ///< on the device
  std::int64_t host_pages = 0;
  std::int64_t disk_pages = 0;
};

/// The new tokens of one sequence.
struct PassTokens {
  std::vector<std::int64_t> tokens;  ///< at least one
  std::int64_t position = 0;         ///< of the first of them in the sequence
  std::vector<std::int32_t> pages;   ///< of the sequence, up to the page of its last new token
  std::int64_t logits = 1;           ///< how many of the last new tokens need logits; may be 0
};

/// The sequences of a pass, in the order of their rows. A sequence is in a pass at most once.
using Pass = std::vector<PassTokens>;

/// Moves a page from one tier to another.
struct PageMove {
  std::int32_t from = 0;
  std::int32_t to = 0;
  friend bool operator==(const PageMove&, const PageMove&) = default;
};

/// Moves before a pass, to be made in this order.
using PageMoves = std::vector<PageMove>;

}  // namespace strata
