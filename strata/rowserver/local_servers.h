/// Makes the servers of a run that is one process: function calls, nothing to start.
///
/// Rows and gradients are rounded as if they were sent, so that the rows have the bits that servers of
/// other processes would give them, whatever the number of shards.
///
/// Threads  each of the results belongs to one rank's thread. One that is destroyed ends the others'
///          waiting for what its rank has not sent.
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
  WireOptions wire = {};
  std::int64_t version = 0;  ///< of the rows as they are
  /// What save() does with the rows of a shard at that version; without it save() is refused.
  std::function<void(int shard, std::int64_t version)> save = {};
};

/// The shards of a run: `rows` of shard i hold the ids whose shard_of() is i.
class LocalShards {
 public:
  LocalShards(std::vector<std::shared_ptr<RowStore>> rows, LocalServersOptions options);
  ~LocalShards();

  ShardServer& shard(int index) { return *servers_[static_cast<std::size_t>(index)]; }
  int shards() const { return static_cast<int>(servers_.size()); }
  const RowStore& rows(int index) const { return *rows_[static_cast<std::size_t>(index)]; }
  const LocalServersOptions& options() const { return options_; }

  /// Once, however many ranks ask; within ShardServer::at().
  void save(int shard, std::int64_t version);

 private:
  std::vector<std::shared_ptr<RowStore>> rows_;
  LocalServersOptions options_;
  std::vector<std::int64_t> saved_;  // the last one, by shard
  std::vector<std::unique_ptr<ShardServer>> servers_;
};

/// One for each rank.
std::vector<std::unique_ptr<RowServers>> make_local_servers(std::shared_ptr<LocalShards> shards);
std::vector<std::unique_ptr<RowServers>> make_local_servers(
    std::vector<std::shared_ptr<RowStore>> rows, const LocalServersOptions& options);

}  // namespace strata
