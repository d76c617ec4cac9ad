/// Reckons what rows cost before there are any: bytes of a row, servers that hold so many, bytes that a
/// step sends, seconds that a snapshot takes.
///
/// Bytes of a row are those that a table's budget counts. Bytes on the wire are those of the messages
/// themselves, with ids spread over 64 bits as hashes are; what gRPC adds to a message is not in them.
///
/// Source   the size to plan for: Lian et al., "Persia" (arXiv 2111.05897).
/// Units    bytes and seconds; fractions are kept.
/// Errors   UserError: counts, sizes and rates that no table has.
#pragma once

#include <cstdint>
#include <span>

#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/feature.h"

namespace strata {

/// Rows of one table on a set of equal machines.
struct RowCapacity {
  int row_bytes = 0;  ///< values, states and overhead
  double bytes = 0;   ///< of all rows
  std::int64_t servers = 0;
  double server_rows = 0;
  double server_bytes = 0;
  /// Processes of a server: a shard numbers at most kMostRows of a table.
  std::int64_t server_shards = 1;

  std::int64_t shards() const { return servers * server_shards; }
};

/// `memory`: of a server; `fill`: the share of it that rows may take.
RowCapacity row_capacity(const FeatureSpec& row, double rows, double memory, double fill);

/// What all shards of rows get and send.
struct WireBytes {
  double received = 0;  ///< requests and gradients
  double sent = 0;      ///< rows
  double total() const { return received + sent; }
  WireBytes operator*(double times) const { return {received * times, sent * times}; }
};

/// Of a rank's part of one step that reads `rows[t]` distinct rows of table t and sends their gradients.
WireBytes wire_bytes(std::span<const FeatureSpec> tables, std::span<const double> rows,
                     std::int64_t shards, const WireOptions& wire);

struct SampleTraffic {
  double batch = 1024;    ///< samples of a rank's step
  double ids = 26;        ///< of a sample
  double distinct = 0.5;  ///< share of a batch's ids that differ from one another
  WireOptions wire = {};
};
/// Of one sample.
WireBytes sample_wire_bytes(const FeatureSpec& row, std::int64_t shards,
                            const SampleTraffic& traffic);

/// Of a snapshot at so many bytes a second: a row takes there at most what it takes in memory.
double snapshot_seconds(double row_bytes, double bytes_per_second);

}  // namespace strata
