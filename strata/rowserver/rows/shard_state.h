/// Converts the rows of a shard to records and back, for snapshots, digests and replicas.
///
/// Threads  one at a time, and not in parallel with an update; counts(): any, in parallel with
///          everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strata/rowserver/rows/hot_rows.h"
#include "strata/rowserver/rows/row_store.h"

namespace strata {

/// Records hold everything that later updates and reads depend on: values, optimizer states, hits
/// and candidates.
struct StateRecord {
  int feature = 0;
  std::uint8_t kind = 0;  ///< from kOfShard on: a record of the whole shard, not of an id
  std::uint64_t id = 0;
  std::span<const std::byte> bytes;
};
inline constexpr std::uint8_t kOfShard = 128;

/// What is known about one row. `value` is what a read returns, also if there is no row.
struct RowDescription {
  std::string feature;
  std::uint64_t id = 0;
  bool there = false;
  std::vector<float> value;
  // Set if the row exists:
  RowTier tier = RowTier::kMemory;
  bool candidate = false;  ///< counted, not yet admitted
  std::int64_t last_update = 0, hits = 0;
  std::vector<float> state;  ///< of the optimizer
};

class ShardState {
 public:
  virtual ~ShardState() = default;
  virtual RowStore& rows() = 0;

  /// Writes all records in the order of the store, which equal updates leave equal. put() needs
  /// this order.
  virtual void write(const std::function<void(const StateRecord&)>& sink) = 0;

  /// Adds a record to an empty store. Several records of a kind from kOfShard on may be added.
  virtual void put(const StateRecord& record) = 0;

  /// Call after the last put(): the rows now have version `version`. `whole`: they are all rows of
  /// one shard.
  virtual void finish(std::int64_t version, bool whole) = 0;

  // Queries.
  virtual std::vector<FeatureCounts> counts()
      const = 0;                     ///< per feature, at the end of the last step
  virtual std::int64_t bytes() = 0;  ///< of memory
  virtual RowDescription describe(int feature, std::uint64_t id) = 0;
  /// Returns the `count` ids with the most updates.
  virtual HotRows hottest(int feature, int count) = 0;
};

using MakeShardState = std::function<std::unique_ptr<ShardState>()>;

/// Sum over the records of ids, independent of their order and of the number of shards: the sum of
/// all shards' digests stays the same.
std::uint64_t digest_of(ShardState& state);

}  // namespace strata
