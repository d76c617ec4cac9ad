/// Reads and updates rows in this process or on servers that hold one shard each.
///
/// Version v of the rows is the result of the first v updates; update v turns version v - 1 into
/// version v. An update has one part per rank. The parts are added in rank order and applied at
/// once, so the result does not depend on the order of their arrival. A read names the version of
/// each feature and returns exactly that version: the reader, not the network, decides how stale
/// rows are.
///
/// Each rank sends in order, and reads version v before it sends its part of update v + 1. So when
/// a server has all parts of update v + 1, it also has every read of version v.
///
/// Source   hybrid training: Lian et al., "Persia" (arXiv 2111.05897); state machine replication:
///          Schneider 1990.
/// Threads  one rank's thread; reads and updates in progress run in parallel with it.
/// Errors   UserError: features or versions that servers do not have. SystemError: servers that are
///          unreachable for longer than the deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "strata/rowserver/feature.h"

namespace strata {

/// A server keeps state per rank, and a rank keeps state per server.
inline constexpr int kMostRanks = 1 << 16, kMostShards = 1 << 10;

/// The ids of one feature, distinct and ascending.
struct FeatureRead {
  int feature = 0;
  std::int64_t version = 0;
  std::vector<std::uint64_t> ids;
};

/// [ids, width]: rows that were read, or gradients.
struct FeatureRows {
  int feature = 0;
  /// The version that a server read the rows at. For gradients: the version of the rows that they
  /// were computed from; servers compute staleness from it.
  std::int64_t version = 0;
  std::vector<std::uint64_t> ids;
  std::vector<float> values;
};

/// Rows that are being read.
class PendingRows {
 public:
  virtual ~PendingRows() = default;
  virtual std::vector<FeatureRows> wait() = 0;  ///< in the order of the request
};

class RowServers {
 public:
  virtual ~RowServers() = default;

  /// Starts a read.
  virtual std::unique_ptr<PendingRows> read(std::vector<FeatureRead> features) = 0;

  /// Starts this rank's part of update `version`; the part may be empty. Versions are consecutive,
  /// starting after the version at which the run began.
  virtual void update(std::int64_t version, std::vector<FeatureRows> gradients,
                      double rate_factor) = 0;

  /// Returns when version `version` exists.
  virtual void await(std::int64_t version) = 0;

  /// Makes every shard save that version as one consistent cut; returns when it is durable.
  virtual void save(std::int64_t version) = 0;
};

}  // namespace strata
