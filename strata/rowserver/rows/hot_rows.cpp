#include "strata/rowserver/rows/hot_rows.h"

#include <algorithm>

namespace strata {

void HotRows::add(const RowRecord& row) {
  if (row.candidate) return;
  const bool cold = row.tier == RowTier::kDisk;
  ++(cold ? cold_rows : rows);
  (cold ? cold_updates : updates) += row.hits;
  add(HotId{row.id, row.hits, row.tier});
}

void HotRows::add(const HotRows& other) {
  rows += other.rows, cold_rows += other.cold_rows;
  updates += other.updates, cold_updates += other.cold_updates;
  for (const HotId& id : other.ids_) add(id);
}

// Sorts only when the list has doubled.
void HotRows::add(HotId id) {
  ids_.push_back(id);
  if (ids_.size() >= 2 * count_ + 1024) keep();
}

void HotRows::keep() {
  const std::size_t kept = std::min(count_, ids_.size());
  std::partial_sort(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(kept), ids_.end(),
                    [](const HotId& a, const HotId& b) {
                      return a.hits != b.hits ? a.hits > b.hits : a.id < b.id;
                    });
  ids_.resize(kept);
}

std::vector<HotId> HotRows::ids() const {
  HotRows sorted = *this;
  sorted.keep();
  return std::move(sorted.ids_);
}

}  // namespace strata
