/// Stores the rows of all features in this process, for a server or for a trainer without servers.
///
/// A table with a budget evicts rows when an id gets a row or a row returns from disk. A hand moves
/// over the rows of one feature after another, and each feature's policy selects the rows to evict.
/// With a `cold` folder, evicted rows are written to disk and return with their next update;
/// without one, they restart from their initial values. The budget counts values, states and 26
/// bytes per row, so evictions depend on updates only.
///
/// After a SystemError in update() or end_step() the table refuses further updates: load the last
/// snapshot and repeat the updates since then.
///
/// Units    budgets in bytes.
/// Threads  read(): any number, in parallel with everything but insert_row() and
///          restore_bookkeeping(). last_counts(): any number, in parallel with everything.
///          update(): see RowStore. The rest: one thread.
/// Cost     a read: two cache misses, overlapped over many rows; a row: its payload and at most 26
///          bytes.
/// Errors   UserError: contradictory features, a budget of less than 64 rows. SystemError: no
///          memory, no disk space, a damaged file of cold rows.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "strata/rowserver/rows/feature_table.h"
#include "strata/rowserver/rows/hot_rows.h"
#include "strata/rowserver/rows/row_store.h"

namespace strata {

struct RowTableOptions {
  // Rows depend on these fields.
  std::uint64_t seed = 1;
  std::int64_t memory_bytes = 0;  ///< for the rows of all features; 0: no budget
  std::string cold;               ///< folder for rows that do not fit in memory; empty: none
  /// per feature's Bloom filter: one byte per counter, 4 counters per id
  std::int64_t bloom_bytes = 1 << 20;
};

/// What is known about a row.
struct RowInfo {
  RowTier tier = RowTier::kMemory;
  bool candidate = false;  ///< counted, not yet admitted
  std::int64_t step = 0;   ///< of the last update
  std::int64_t hits = 0;   ///< number of updates
  std::vector<float> values;
  std::vector<float> states;
};

class RowTable final : public RowStore {
 public:
  explicit RowTable(std::vector<FeatureSpec> features, RowTableOptions options = {});
  ~RowTable() override;

  const std::vector<FeatureSpec>& features() const override { return specs_; }
  void read(int feature, std::span<const std::uint64_t> ids, std::span<float> rows) const override;
  /// `step` is 0 or more and ascends per feature.
  void update(std::int64_t step, int feature, std::span<const std::uint64_t> ids,
              std::span<const float> gradients, double rate_factor) override;
  void end_step(std::int64_t step) override;
  bool features_are_independent(std::span<const std::size_t> ids) const override;

  /// Sets a new budget and evicts the rows that exceed it.
  void set_memory_bytes(std::int64_t bytes);

  // ---- Queries
  std::optional<RowInfo> info(int feature, std::uint64_t id) const;  ///< nullopt: no row
  FeatureCounts counts(int feature) const;
  /// Counts per feature at the last end_step() or restore_bookkeeping().
  std::vector<FeatureCounts> last_counts() const;
  std::int64_t bytes() const;       ///< allocated memory
  std::int64_t used_bytes() const;  ///< used bytes of the budget
  /// Reads all rows of the feature, including cold rows.
  HotRows hottest(int feature, int count) const;
  /// Digest of all rows and candidates, independent of order and tier: equal digests mean equal
  /// rows.
  std::uint64_t digest(int feature) const;
  std::uint64_t digest() const;

  // ---- Snapshots: the rows in order and the bookkeeping, inserted into an empty table with the
  // same features and budget, continue exactly as the original. With another number of servers the
  // rows are the same, but later evictions and admissions may differ.

  void for_each_row(const std::function<void(const RowRecord&)>& visitor) const;
  void insert_row(const RowRecord& row);
  /// Steps, admission filters, and positions of the eviction hands.
  std::string bookkeeping() const;
  /// kWhole: from the table that all rows come from. kPart: from one of several tables whose rows
  /// are merged or divided; a filter then counts the maximum over all of them.
  enum class Bookkeeping : std::uint8_t { kWhole, kPart };
  void restore_bookkeeping(std::string_view text, Bookkeeping of);

 private:
  FeatureTable& rows_of(int feature) const;
  void make_room(std::int64_t bytes);
  template <typename Change>
  void change(Change change);
  void publish_counts();

  std::vector<FeatureSpec> specs_;
  RowTableOptions options_;
  RowBudget budget_;
  std::unique_ptr<ColdRows> cold_;
  std::vector<std::unique_ptr<FeatureTable>> features_;
  std::atomic<bool> failed_ = false;

  mutable std::mutex published_mutex_;
  std::vector<FeatureCounts> published_;

  // Position of the eviction hand.
  int hand_feature_ = 0;
  FeatureTable::Kind hand_kind_ = FeatureTable::Kind::kRows;
  std::uint32_t hand_position_ = 0;
};

}  // namespace strata
