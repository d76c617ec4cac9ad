/// Keeps the rows of a run that has no servers beside its checkpoints: of each version that is saved, a
/// snapshot a shard.
///
///     FOLDER/shard-0/...   snapshots (snapshot.h), by version
///     FOLDER/shard-1/...
///
/// Threads  save(): of different shards at once; the rest: one thread.
/// Errors   as snapshots; UserError for a version that is not there, or rows of another recipe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "strata/rowserver/rows/shard_state.h"

namespace strata {

class SavedRows {
 public:
  /// `keep`: the newest versions; 0: all.
  SavedRows(std::string folder, std::uint64_t fingerprint, std::int64_t keep);

  void save(std::int64_t version, int shard, int shards, ShardState& state) const;

  /// Into rows that are new; from any number of shards.
  void load(std::int64_t version, int shard, int shards, ShardState& state) const;

  /// The row of one id alone, if there is one; not to be trained on.
  void load_row(std::int64_t version, int feature, std::uint64_t id, ShardState& state) const;

 private:
  int shards_of(std::int64_t version) const;
  void read(const std::string& path, std::int64_t version, int shard, int shards, ShardState& state,
            const std::function<bool(const StateRecord&)>& keep) const;
  std::string shard_folder(int shard) const;

  std::string folder_;
  std::uint64_t fingerprint_;
  std::int64_t keep_;
};

}  // namespace strata
