/// Keeps the rows of all features in this process: the row store of a server, or of a trainer that has none.
///
/// A table under a budget evicts when an id gets a row, or comes back from disk: a hand goes over the
/// rows of feature after feature, and each feature's policy says who goes. With a `cold` folder they go
/// to disk and come back with their next update; without, they start again from their first values. The
/// budget counts what a row costs, values, states and 26 bytes, so that what is evicted depends on
/// updates alone.
///
/// After a SystemError in update() or end_step() the table refuses further updates: load the last
/// snapshot and repeat the updates since.
///
/// Units    budgets in bytes.
/// Threads  read(): any number, beside all others but insert_row() and restore_bookkeeping();
///          last_counts(): any number, beside all others; the rest: one thread.
/// Cost     a read: two cache misses, of many rows at once; a row: its payload and at most 26 bytes.
/// Errors   UserError: features that contradict themselves, a budget of less than 64 rows; SystemError:
///          no memory, no disk space, a damaged file of cold rows.
#pragma once

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
  // What rows become depends on these.
  std::uint64_t seed = 1;
  std::int64_t memory_bytes = 0;       ///< for the rows of all features; 0: no budget
  std::string cold;                    ///< folder for rows that memory has no room for; empty: none
  std::int64_t bloom_bytes = 1 << 20;  ///< of a feature's Bloom filter: one byte a counter, 4 an id
};

/// What there is to know about a row.
struct RowInfo {
  RowTier tier = RowTier::kMemory;
  bool candidate = false;  ///< counted, not admitted yet
  std::int64_t step = 0;   ///< of its last update
  std::int64_t hits = 0;   ///< updates
  std::vector<float> values;
  std::vector<float> states;
};

class RowTable final : public RowStore {
 public:
  explicit RowTable(std::vector<FeatureSpec> features, RowTableOptions options = {});
  ~RowTable() override;

  const std::vector<FeatureSpec>& features() const override { return specs_; }
  void read(int feature, std::span<const std::uint64_t> ids, std::span<float> rows) const override;
  /// `step`: 0 or more, ascending per feature.
  void update(std::int64_t step, int feature, std::span<const std::uint64_t> ids,
              std::span<const float> gradients, double rate_factor) override;
  void end_step(std::int64_t step) override;

  /// Another budget, from now on; evicts what is beyond it.
  void set_memory_bytes(std::int64_t bytes);

  // ---- What people ask
  std::optional<RowInfo> info(int feature, std::uint64_t id) const;  ///< none: no row
  FeatureCounts counts(int feature) const;
  /// By feature, as the last end_step() or restore_bookkeeping() left them.
  std::vector<FeatureCounts> last_counts() const;
  std::int64_t bytes() const;       ///< of memory that was allocated
  std::int64_t used_bytes() const;  ///< of the budget
  /// Reads all rows of the feature, cold ones too.
  HotRows hottest(int feature, int count) const;
  /// Of all rows and candidates, whatever their order and tier: equal digests, equal rows.
  std::uint64_t digest(int feature) const;
  std::uint64_t digest() const;

  // ---- Snapshots: rows in their order and the bookkeeping, put into an empty table of the same
  // features and budget, go on as if nothing had happened. Read on by another number of servers, rows
  // are the same, and what is evicted and admitted later may differ.

  void for_each_row(const std::function<void(const RowRecord&)>& visitor) const;
  void insert_row(const RowRecord& row);
  /// Steps, admission filters, where the hands of eviction stand.
  std::string bookkeeping() const;
  /// kWhole: of the table that all rows come from. kPart: of one of several whose rows are put together
  /// or divided; filters then count the most that any has counted.
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
  mutable ReadEpochs epochs_;
  std::unique_ptr<ColdRows> cold_;
  std::vector<std::unique_ptr<FeatureTable>> features_;
  bool failed_ = false;

  mutable std::mutex published_mutex_;
  std::vector<FeatureCounts> published_;

  // The hand of evictions.
  int hand_feature_ = 0;
  FeatureTable::Kind hand_kind_ = FeatureTable::Kind::kRows;
  std::uint32_t hand_position_ = 0;
};

}  // namespace strata
