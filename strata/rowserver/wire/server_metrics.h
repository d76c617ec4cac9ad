/// Writes the counts of a server of rows as text that Prometheus reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/rowserver/feature.h"
#include "strata/rowserver/shard/shard_server.h"
#include "strata/rowserver/wire/replica.h"
#include "strata/rowserver/wire/shard_sessions.h"

namespace strata {

struct ServerMetrics {
  int shard = 0, shards = 1;
  ShardCounts gate;
  SessionCounts sessions;
  std::vector<FeatureSpec> features;
  std::int64_t durable_version = 0, log_bytes = 0, memory_bytes = 0;
  PersistentShard::Compactions compactions;
  std::optional<ReplicaCounts> replica = {};
  std::vector<std::int64_t> rows = {};  ///< by feature
};

std::string prometheus_text(const ServerMetrics& metrics);

}  // namespace strata
