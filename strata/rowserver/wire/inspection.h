/// Answers questions about the rows of one shard: values, counts, digests, the lag of a replica.
///
/// ShardInspection answers in the server's process; remote_inspection() asks a server by gRPC.
///
/// Threads  any.
/// Errors   UserError: a feature that the server lacks, an id of another shard, more than
///          kMostInspectedIds ids, a version that no update will make, run() while a run continues
///          or of a replica. SystemError: the server is away (remote_inspection() alone).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/rowserver/rows/hot_rows.h"
#include "strata/rowserver/rows/shard_state.h"

namespace strata {

inline constexpr std::size_t kMostInspectedIds = 10'000;  ///< per answer

struct RowsDigest {
  std::int64_t version = 0;
  std::uint64_t digest = 0;
  bool operator==(const RowsDigest&) const = default;
};

/// All rows at one version.
struct RowValues {
  std::int64_t version = 0;
  int width = 0;
  std::vector<float> values;  ///< [ids, width]
  bool operator==(const RowValues&) const = default;
};

struct TableCounts {
  std::string feature;
  FeatureCounts counts;  ///< rows and bytes of each tier; the other counts stay 0
};

/// Versions of a replica and of the server that it follows.
struct ReplicaLag {
  std::int64_t version = 0;
  std::int64_t primary = 0;  ///< as last reported
  bool following = false;    ///< the stream of updates is connected
  std::int64_t updates() const { return primary > version ? primary - version : 0; }
};

class RowInspection {
 public:
  virtual ~RowInspection() = default;

  virtual std::string metrics() = 0;  ///< in the text format of Prometheus
  virtual RowsDigest digest() = 0;    ///< of the current version
  /// Waits for `version` while ranks train.
  virtual RowsDigest digest_at(std::int64_t version) = 0;
  virtual RowDescription row(const std::string& feature, std::uint64_t id) = 0;
  virtual RowValues rows(const std::string& feature, const std::vector<std::uint64_t>& ids) = 0;
  /// At most kMostInspectedIds ids with the most updates.
  virtual HotRows hot(const std::string& feature, int count) = 0;
  virtual std::vector<TableCounts> sizes() = 0;
  virtual std::optional<ReplicaLag> lag() = 0;  ///< none: the server is no replica
  /// The number of the last run; an error names the process of a run that continues.
  virtual std::uint64_t run() = 0;
};

}  // namespace strata
