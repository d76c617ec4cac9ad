/// Connects a run to servers that are other processes, on this machine or others.
///
/// Example  auto servers = make_remote_servers({.addresses = {"host1:7001", "host2:7001"},
///                                              .features = features, .run = name});
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/process_identity.h"
#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/row_servers.h"
#include "strata/rowserver/shard/run_number.h"
#include "strata/rowserver/wire/server_access.h"

namespace strata {

struct RemoteServersOptions {
  std::vector<std::string> addresses;  ///< by shard: "host:port" or "unix:path"
  std::vector<FeatureSpec> features;
  std::uint64_t seed = 1;
  int rank = 0, ranks = 1;
  RunName run =
      1;  ///< the same for all ranks of a run (draw_run_name()); each server numbers it for itself
  /// The previous run of each server: runs_to_follow(). Empty: no server has had a run.
  std::vector<std::uint64_t> follows = {};
  ProcessIdentity holder = this_process();    ///< process 0 of the run
  std::int64_t version = 0;                   ///< at which the run begins: servers go back to it
  std::vector<std::uint64_t> abandoned = {};  ///< earlier runs without a checkpoint (Hello)
  WireOptions wire = {};
  ServerAccess access = {};
  std::chrono::milliseconds deadline{60'000};  ///< that a server may be away
  std::int64_t credit_bytes = std::int64_t{64} << 20;
  std::function<void(const std::string&)> notice = {};  ///< whom a rank waits for; from any thread
  /// Once true, the wait for a server that is away ends; null: never.
  const std::atomic<bool>* stop = nullptr;
};

/// Returns for each server the number of its last run, once that run has ended. Waits for servers
/// that are away, as ranks do. A UserError names the process of a run that continues. Called once
/// for all ranks, before the first one connects.
std::vector<std::uint64_t> runs_to_follow(const RemoteServersOptions& options);

/// The servers as one rank sees them. The destructor reports to the servers that this rank sends no
/// more.
std::unique_ptr<RowServers> make_remote_servers(const RemoteServersOptions& options);

}  // namespace strata
