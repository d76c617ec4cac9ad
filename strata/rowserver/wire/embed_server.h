/// Serves the rows of one shard to the ranks of a run, over gRPC, and keeps them in a folder; or
/// follows such a server as a replica, which answers reads (inspection.h) and takes no updates.
///
/// Source   Lian et al., "Persia" (arXiv 2111.05897): embedding parameter servers
/// Threads  any.
/// Errors   as PersistentShard and GrpcServer; wait() throws what ended the server.
/// Example  EmbedServer server({.features = features, .folder = "rows"});
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/rowserver/feature.h"
#include "strata/rowserver/shard/update_log.h"
#include "strata/rowserver/wire/inspection.h"
#include "strata/rowserver/wire/server_access.h"

namespace strata {

struct ServerOptions {
  // What rows become depends on these; trainers have to have the same.
  std::vector<FeatureSpec> features;
  std::uint64_t seed = 1;
  int shard = 0, shards = 1, ranks = 1;
  std::int64_t memory_bytes = 0;  ///< for the rows of this shard; 0: no budget

  std::string folder;                  ///< of snapshots and log
  std::string cold_folder;             ///< for rows beyond memory_bytes; empty: they are evicted
  std::vector<std::string> from = {};  ///< folders of another number of servers, to start with
  std::string listen = "127.0.0.1:7001";
  ServerAccess access = {};  ///< also to the server that is followed
  SyncPolicy sync = {};
  int kept_snapshots = 2;
  std::int64_t log_limit = kDefaultLogLimit;  ///< bytes; 0: none (persistent_shard.h)
  std::string follow;                         ///< the server to be a replica of; empty: none
  double ask_seconds = 50;                    ///< longest wait of RowInspection::digest_at()
};

class EmbedServer {
 public:
  explicit EmbedServer(ServerOptions options);
  ~EmbedServer();
  EmbedServer(const EmbedServer&) = delete;
  EmbedServer& operator=(const EmbedServer&) = delete;

  std::string address() const;

  /// What starting found, for people: "version 120 from snapshot 100 and 20 updates in 0.1 s".
  std::string recovery() const;

  RowInspection& inspection();
  /// Whether it answers reads: false for a replica that has no rows yet.
  bool serving() const;

  /// Returns at shut_down(), or throws what ended the server.
  void wait();
  void shut_down();  ///< also from a signal's thread

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
