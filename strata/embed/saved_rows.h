/// Saves the rows of a run without servers next to its checkpoints: one snapshot per shard and
/// saved version.
///
///     FOLDER/shard-0/...   snapshots (snapshot.h), by version
///     FOLDER/shard-1/...
///
/// Threads  save(): different shards in parallel; the rest: one thread.
/// Errors   as snapshots; UserError for a version that does not exist, or rows of another recipe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "strata/rowserver/rows/shard_state.h"

namespace strata {

class SavedRows {
 public:
  /// `keep`: number of newest versions to keep; 0: all.
  SavedRows(std::string folder, std::uint64_t fingerprint, std::int64_t keep);

  void save(std::int64_t version, int shard, int shards, ShardState& state) const;

  /// Loads into empty rows, from any number of shards.
  void load(std::int64_t version, int shard, int shards, ShardState& state) const;

  /// Loads the row of one id, if it exists. The result is for reading, not for training.
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
