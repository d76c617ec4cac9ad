/// Finds the slots of many ids at once and prefetches the cache lines of the next ids (Highway).
///
/// Threads  any, in parallel with a writer of the index (row_index.h).
#pragma once

#include <cstdint>
#include <span>

#include "strata/rowserver/rows/row_index.h"

namespace strata::kernels {

/// Where the search for an id starts.
struct SearchStart {
  std::uint64_t chunks = 0;  ///< RowIndex::Chunks
  std::uint64_t hash = 0;
};

/// Starts the search for ids, and prefetches the chunks that search() will read.
void begin_search(const RowIndex& index, std::span<const std::uint64_t> ids, SearchStart* starts);

/// Returns the slot of the first entry with each id's tag, or kNoSlot. Its row may belong to
/// another id.
void search(std::span<const SearchStart> starts, std::uint32_t* slots);

}  // namespace strata::kernels
