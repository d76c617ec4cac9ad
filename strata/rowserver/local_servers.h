/// Creates the row servers of a run in one process: calls are function calls, and no server has to
/// be started.
///
/// Rows and gradients are rounded as if they were sent, so rows have the same bits as on servers in
/// other processes, for any number of shards.
///
/// Threads  each result belongs to the thread of one rank. When a result is destroyed, other ranks
///          stop waiting for parts that its rank has not sent.
/// Example  auto servers = make_local_servers({table}, {.ranks = 2});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/row_servers.h"
#include "strata/rowserver/rows/row_store.h"
#include "strata/rowserver/shard/shard_server.h"

namespace strata {

struct LocalServersOptions {
  int ranks = 1;
  int threads = 1;  ///< that read and update rows of all shards; the calling one counts
  WireOptions wire = {};
  std::int64_t version = 0;  ///< version of the rows at the start
  /// Saves the rows of a shard at that version; if empty, save() is refused.
  std::function<void(int shard, std::int64_t version)> save = {};
};

/// The shards of a run. `rows` of shard i hold the ids whose shard_of() is i.
class LocalShards {
 public:
  LocalShards(std::vector<std::shared_ptr<RowStore>> rows, LocalServersOptions options);
  ~LocalShards();

  ShardServer& shard(int index) { return *servers_[static_cast<std::size_t>(index)]; }
  int shards() const { return static_cast<int>(servers_.size()); }
  const RowStore& rows(int index) const { return *rows_[static_cast<std::size_t>(index)]; }
  const LocalServersOptions& options() const { return options_; }

  /// Processor seconds of the threads that help since the last call.
  double take_helped_seconds() { return threads_->take_processor_seconds(); }

  /// Saves once for any number of ranks; call it within ShardServer::at().
  void save(int shard, std::int64_t version);

 private:
  std::vector<std::shared_ptr<RowStore>> rows_;
  LocalServersOptions options_;
  std::shared_ptr<HelperThreads> threads_;
  std::vector<std::int64_t> saved_;  // last saved version per shard
  std::vector<std::unique_ptr<ShardServer>> servers_;
};

/// Returns one object per rank.
std::vector<std::unique_ptr<RowServers>> make_local_servers(std::shared_ptr<LocalShards> shards);
std::vector<std::unique_ptr<RowServers>> make_local_servers(
    std::vector<std::shared_ptr<RowStore>> rows, const LocalServersOptions& options);

}  // namespace strata
