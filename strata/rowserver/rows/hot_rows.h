/// Ranks the ids of a feature by the number of their updates, and counts rows in memory and on
/// disk.
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
  std::int64_t hits = 0;  ///< updates: steps with this id
  RowTier tier = RowTier::kMemory;
};

class HotRows {
 public:
  explicit HotRows(int count = 0) : count_(static_cast<std::size_t>(count)) {}

  void add(const RowRecord& row);  ///< a candidate has no row and is not counted
  void add(const HotRows& other);  ///< adds the rows of another shard
  void add(HotId id);              ///< adds an id that is already counted

  /// Returns the ids with the most updates, in descending order; of equals the lower id first.
  std::vector<HotId> ids() const;

  std::int64_t rows = 0, cold_rows = 0;        ///< in memory, on disk
  std::int64_t updates = 0, cold_updates = 0;  ///< of rows in memory, of rows on disk

 private:
  void keep();

  std::size_t count_;
  std::vector<HotId> ids_;  // may be more than count_
};

}  // namespace strata
