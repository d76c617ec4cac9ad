/// Finds the slots of many ids at once, with the cache lines of the next ones on their way (Highway).
///
/// Threads  any; beside a writer of the index (row_index.h).
#pragma once

#include <cstdint>
#include <span>

#include "strata/rowserver/rows/row_index.h"

namespace strata::kernels {

/// Where the search for an id begins.
struct SearchStart {
  std::uint64_t chunks = 0;  ///< RowIndex::Chunks
  std::uint64_t hash = 0;
};

/// Begins to search for ids, and has the chunks fetched that search() will look at.
void begin_search(const RowIndex& index, std::span<const std::uint64_t> ids, SearchStart* starts);

/// The slots of the first entries that have the ids' tags, or kNoSlot; their rows may be others'.
void search(std::span<const SearchStart> starts, std::uint32_t* slots);

}  // namespace strata::kernels
