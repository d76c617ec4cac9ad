/// Ranks the ids of a feature by how often training has met them, and counts where their rows are.
///
/// Threads  one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "strata/rowserver/rows/feature_table.h"

namespace strata {

struct HotId {
  std::uint64_t id = 0;
  std::int64_t hits = 0;  ///< updates: steps that had it
  RowTier tier = RowTier::kMemory;
};

class HotRows {
 public:
  explicit HotRows(int count = 0) : count_(static_cast<std::size_t>(count)) {}

  void add(const RowRecord& row);  ///< a candidate has no row, and is left out
  void add(const HotRows& other);  ///< of another shard
  void add(HotId id);              ///< that is counted already

  /// Those with the most updates, descending; of equals the lower id first.
  std::vector<HotId> ids() const;

  std::int64_t rows = 0, cold_rows = 0;        ///< in memory, on disk
  std::int64_t updates = 0, cold_updates = 0;  ///< of rows in memory, of those on disk

 private:
  void keep();

  std::size_t count_;
  std::vector<HotId> ids_;  // may be more than count_
};

}  // namespace strata
