/// Reads and updates rows wherever they live: in this process, or on servers that hold a shard each.
///
/// Version v of the rows is what the first v updates have left; update number v makes version v of
/// version v - 1. An update has a part from every rank: they are added in rank order and applied at
/// once, so that rows never depend on who came first. A read names the version that it wants of each
/// feature and gets exactly that one: how stale rows are is decided by who asks, not by the network.
///
/// Each rank sends in order, and reads version v before it sends its part of update v + 1. That is all
/// it takes: a server applies update v + 1 when all parts are there, and then every read of version v
/// is, too.
///
/// Source   hybrid training: Lian et al., "Persia" (arXiv 2111.05897); state machine replication:
///          Schneider 1990.
/// Threads  one rank's thread; what is under way goes on beside it.
/// Errors   UserError: features or versions that servers don't have; SystemError: servers that are
///          gone for longer than the deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "strata/rowserver/feature.h"

namespace strata {

/// A server keeps something for each rank, and a rank for each server.
inline constexpr int kMostRanks = 1 << 16, kMostShards = 1 << 10;

/// Of one feature. Ids are distinct and ascending.
struct FeatureRead {
  int feature = 0;
  std::int64_t version = 0;
  std::vector<std::uint64_t> ids;
};

/// [ids, width]: rows that were read, or gradients.
struct FeatureRows {
  int feature = 0;
  /// That they were read at, as the server says; of gradients: of the rows that they belong to, which
  /// is what servers count staleness by.
  std::int64_t version = 0;
  std::vector<std::uint64_t> ids;
  std::vector<float> values;
};

/// Rows on their way.
class PendingRows {
 public:
  virtual ~PendingRows() = default;
  virtual std::vector<FeatureRows> wait() = 0;  ///< in the order of the request
};

class RowServers {
 public:
  virtual ~RowServers() = default;

  /// Starts to read.
  virtual std::unique_ptr<PendingRows> read(std::vector<FeatureRead> features) = 0;

  /// Starts this rank's part of update `version`, which may have no rows; one after the other, from
  /// the version at which the run began + 1.
  virtual void update(std::int64_t version, std::vector<FeatureRows> gradients,
                      double rate_factor) = 0;

  /// Returns when version `version` is there.
  virtual void await(std::int64_t version) = 0;

  /// Has every shard save that version, in one cut; returns when it is durable.
  virtual void save(std::int64_t version) = 0;
};

}  // namespace strata
