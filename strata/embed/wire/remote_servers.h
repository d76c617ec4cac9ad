/// Makes the servers of a run that are other processes, on this machine or others.
///
/// Example  auto servers = make_remote_servers({.addresses = {"host1:7001", "host2:7001"},
///                                              .features = features, .rank = 0, .ranks = 2, .run = now});
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/embed/codec/wire_values.h"
#include "strata/embed/row_servers.h"
#include "strata/embed/wire/tls_files.h"

namespace strata {

struct RemoteServersOptions {
  std::vector<std::string> addresses;  ///< by shard: "host:port" or "unix:path"
  std::vector<FeatureSpec> features;
  std::uint64_t seed = 1;
  int rank = 0, ranks = 1;
  /// The same for all ranks of a run, and higher for every later run, resumed or new: the time in
  /// nanoseconds that rank 0 saw when it began will do.
  std::uint64_t run = 1;
  std::int64_t version = 0;                   ///< at which the run begins: servers go back to it
  std::vector<std::uint64_t> abandoned = {};  ///< earlier runs without a checkpoint (Hello)
  WireOptions wire = {};
  TlsFiles tls = {};
  std::chrono::milliseconds deadline{60'000};  ///< that a server may be away
  std::int64_t credit_bytes = std::int64_t{64} << 20;
  std::function<void(const std::string&)> notice = {};  ///< whom a rank waits for; from any thread
};

/// One rank's. Its end tells the servers that this rank sends no more.
std::unique_ptr<RowServers> make_remote_servers(const RemoteServersOptions& options);

/// Asks a server: see EmbedServer::ask().
std::string ask_server(const std::string& address, const TlsFiles& tls,
                       const std::string& question);

}  // namespace strata
