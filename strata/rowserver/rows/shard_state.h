/// Takes the rows of a shard apart into records and makes them again: what snapshots, digests and
/// replicas are made of.
///
/// Threads  one at a time, and none beside an update; counts(): any, beside all others.
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

/// Everything that later updates and reads depend on is in records: values, optimizer states, hits,
/// who waits to be admitted.
struct StateRecord {
  int feature = 0;
  std::uint8_t kind = 0;  ///< from kOfShard on: of the shard as a whole, not of an id
  std::uint64_t id = 0;
  std::span<const std::byte> bytes;
};
inline constexpr std::uint8_t kOfShard = 128;

/// What is known about one row. `value` is what a reader gets, also where there is no row.
struct RowDescription {
  std::string feature;
  std::uint64_t id = 0;
  bool there = false;
  std::vector<float> value;
  // Set if the row is there:
  RowTier tier = RowTier::kMemory;
  bool candidate = false;  ///< counted, not admitted yet
  std::int64_t last_update = 0, hits = 0;
  std::vector<float> state;  ///< of the optimizer
};

class ShardState {
 public:
  virtual ~ShardState() = default;
  virtual RowStore& rows() = 0;

  /// All records, in the order of the store, which the same updates leave the same; put() takes them
  /// in this order.
  virtual void write(const std::function<void(const StateRecord&)>& sink) = 0;

  /// Adds a record to rows that are new. Of kinds from kOfShard on several may come.
  virtual void put(const StateRecord& record) = 0;

  /// After the last put(): these are the rows of version `version`. `whole`: all that one shard had.
  virtual void finish(std::int64_t version, bool whole) = 0;

  // What people ask.
  virtual std::vector<FeatureCounts> counts()
      const = 0;                     ///< by feature, as the last step left them
  virtual std::int64_t bytes() = 0;  ///< of memory
  virtual RowDescription describe(int feature, std::uint64_t id) = 0;
  /// The so many ids with the most updates.
  virtual HotRows hottest(int feature, int count) = 0;
};

using MakeShardState = std::function<std::unique_ptr<ShardState>()>;

/// A sum over the records of ids, so that neither their order counts nor the number of shards: digests of
/// all shards add up to the same.
std::uint64_t digest_of(ShardState& state);

}  // namespace strata
