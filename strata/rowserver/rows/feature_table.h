/// Holds the rows of one feature: finds, reads, updates, admits and evicts them. RowTable has one
/// per feature, which share a budget.
///
/// Threads  read(): any number, within a Reading of epochs(), in parallel with one thread for the
///          rest. Tables may be updated in parallel while the budget has room for all their rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/rowserver/rows/cold_rows.h"
#include "strata/rowserver/rows/counting_bloom.h"
#include "strata/rowserver/rows/row_index.h"
#include "strata/rowserver/rows/row_layout.h"
#include "strata/rowserver/rows/row_memory.h"

namespace strata {

enum class RowTier : std::uint8_t { kMemory, kDisk };
const char* name_of(RowTier tier);

/// A row in a snapshot.
struct RowRecord {
  int feature = 0;
  std::uint64_t id = 0;
  RowTier tier = RowTier::kMemory;
  bool candidate = false;   ///< no row yet: an id that an exact filter counts
  std::int64_t step = 0;    ///< of the last update
  std::uint32_t hits = 0;   ///< updates; of a candidate: counted updates. At most 2^24 - 1
  std::uint8_t recent = 0;  ///< recency, which eviction compares
  /// values and states in RowLayout's order; empty: a candidate
  std::span<const std::byte> payload;
};

/// Events of a feature's rows since the table was created.
struct FeatureCounts {
  std::int64_t rows = 0;        ///< in memory now
  std::int64_t candidates = 0;  ///< now
  std::int64_t cold_rows = 0;   ///< on disk now
  std::int64_t bytes = 0;       ///< bytes of memory now: rows, index, filter
  std::int64_t cold_bytes = 0;  ///< bytes on disk now, before RocksDB compacts them
  std::int64_t admitted = 0;    ///< ids that got a row
  std::int64_t refused = 0;     ///< gradients of ids without a row
  std::int64_t evicted = 0;   ///< from memory because the budget was full: moved to disk or dropped
  std::int64_t spilled = 0;   ///< to disk
  std::int64_t returned = 0;  ///< from disk
  std::int64_t expired = 0;   ///< not updated for steps_to_live steps
  std::int64_t read_cold = 0;  ///< reads from disk
};

/// The budget of all rows and its use, in the bytes of RowLayout::cost_bytes().
struct RowBudget {
  std::int64_t limit_bytes = 0;  ///< 0: none
  std::atomic<std::int64_t> used_bytes = 0;
  std::function<void(std::int64_t bytes)> make_room;
};

class FeatureTable {
 public:
  FeatureTable(const FeatureSpec& spec, int number, std::uint64_t seed, std::int64_t bloom_bytes,
               ColdRows* cold, RowBudget& budget);

  const ReadEpochs& epochs() const { return epochs_; }
  const FeatureSpec& spec() const { return spec_; }
  const RowLayout& layout() const { return layout_; }

  void read(std::span<const std::uint64_t> ids, std::span<float> rows) const;
  void update(std::int64_t step, std::span<const std::uint64_t> ids,
              std::span<const float> gradients, double rate_factor);

  enum class Kind : std::uint8_t { kRows, kCandidates };
  /// Evicts a row at `position` or after it by the feature's policy. Returns false if none is left
  /// there.
  ///
  ///     clock   visits the rows and evicts the first that was not updated since the last visit
  ///     lfu     evicts the least often updated of the 16 rows at `position`, the first of equals,
  ///             halves the counts of the others and continues after them
  ///
  /// The last row moves to the place of the evicted row. Candidates are evicted by the clock and
  /// are dropped.
  bool evict_from(Kind kind, std::uint32_t& position);

  /// Drops rows that were not updated for steps_to_live steps. Each step examines so many rows that
  /// every row is examined each steps_to_live / 4 steps; a row may stay that much longer.
  void expire(std::int64_t step);
  /// Returns memory that no reader can access any more.
  void trim();

  std::optional<RowRecord> find(std::uint64_t id, std::string& payload) const;
  void for_each(const std::function<void(const RowRecord&)>& visitor) const;
  void insert(const RowRecord& record);
  void widen(const std::byte* values, float* out) const;

  FeatureCounts counts() const;

  // State that snapshots include in addition to the rows.
  std::int64_t last_step = -1;
  std::uint32_t expiry_position[2] = {0, 0};  // by Kind
  std::uint64_t cold_expiry_id = 0;
  CountingBloom bloom;

 private:
  struct Step;

  static constexpr std::uint32_t kCandidate = 1u << 31;  // a bit of slots in the index
  RowMemory& memory(std::uint32_t slot) { return slot & kCandidate ? candidates_ : rows_; }
  const RowMemory& memory(std::uint32_t slot) const {
    return slot & kCandidate ? candidates_ : rows_;
  }
  RowBytes row(std::uint32_t slot) const { return memory(slot).row(slot & ~kCandidate); }

  static constexpr std::size_t kColdHeaderBytes = 8;  // version, uses

  /// Calls visit(i, slot) for ids[i] in order. search() found the slot some ids earlier, and
  /// `fetched_bytes` of the row were prefetched since. The row may belong to another id.
  template <typename Visit>
  void find_ahead(std::span<const std::uint64_t> ids, int fetched_bytes, Visit visit) const;

  bool holds(std::uint32_t slot, std::uint64_t id) const;
  std::uint32_t slot_of(std::uint64_t id) const;
  RowBytes::Copied copy_row(std::uint32_t slot, std::uint64_t id, float* out) const;
  void read_slowly(std::uint64_t id, float* out) const;
  void read_absent(std::uint64_t id, std::uint64_t hash, float* out) const;

  void update_row(const Step& step, std::uint64_t id, std::uint32_t slot, const float* gradient);
  void update_present(const Step& step, RowBytes row, const float* gradient);
  bool return_from_disk(std::uint64_t id);
  void admit(const Step& step, std::uint64_t id, const float* gradient);
  void start_counting(const Step& step, std::uint64_t id);
  void count_candidate(const Step& step, std::uint64_t id, std::uint32_t slot);
  void compute(const Step& step, std::uint32_t hits, const float* values, const float* gradient,
               float* states);
  const void* stored(std::uint64_t id, std::uint32_t version);
  void use(RowBytes row, std::uint32_t hits) const;

  /// Returns the slot of a new row, which is not yet in the index.
  std::uint32_t append(RowMemory& memory, std::uint32_t bit, std::uint64_t id,
                       std::uint32_t version, std::uint32_t uses, const void* values,
                       const void* states);
  void enter(std::uint64_t id, std::uint32_t slot);
  void remove(std::uint32_t slot);
  void evict(std::uint32_t slot);
  void expire_cold(std::int64_t step);
  void make_room(int bytes) {
    if (budget_.limit_bytes && budget_.used_bytes + bytes > budget_.limit_bytes)
      budget_.make_room(bytes);
  }
  int cost(std::uint32_t slot) const {
    return slot & kCandidate ? kRowOverheadBytes : layout_.cost_bytes();
  }
  bool filtered(RowAdmission::Filter filter) const {
    return spec_.admission.filter == filter && spec_.admission.threshold > 1;
  }

  FeatureSpec spec_;
  int number_;
  std::uint64_t key_;
  RowLayout layout_;
  ColdRows* cold_;
  RowBudget& budget_;
  ReadEpochs epochs_{std::free};
  RowMemory rows_;
  RowMemory candidates_;
  RowIndex index_;
  RowIndex::HashOfSlot hash_of_slot_;

  // Used by the writer only.
  std::vector<float> values_, states_;
  std::vector<std::uint32_t> words_;
  std::vector<std::byte> stored_;
  std::string cold_row_;
  FeatureCounts counts_;

  std::atomic<std::int64_t> cold_rows_ = 0;
  mutable std::atomic<std::int64_t> read_cold_ = 0;
};

}  // namespace strata
