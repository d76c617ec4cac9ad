/// Computes what rows cost before any exist: bytes per row, servers needed, bytes that a step
/// sends, and seconds that a snapshot takes.
///
/// Bytes per row are those that a table's budget counts. Bytes on the wire are those of the
/// messages, with ids spread over 64 bits as hashes are; the overhead of gRPC is not included.
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

/// The rows of one table on a set of equal machines.
struct RowCapacity {
  int row_bytes = 0;  ///< values, states and overhead
  double bytes = 0;   ///< all rows
  std::int64_t servers = 0;
  double server_rows = 0;
  double server_bytes = 0;
  /// Processes per server: a shard holds at most kMostRows rows of a table.
  std::int64_t server_shards = 1;

  std::int64_t shards() const { return servers * server_shards; }
};

/// `memory`: bytes per server. `fill`: the share of them that rows may use.
RowCapacity row_capacity(const FeatureSpec& row, double rows, double memory, double fill);

/// Bytes that all shards receive and send.
struct WireBytes {
  double received = 0;  ///< requests and gradients
  double sent = 0;      ///< rows
  double total() const { return received + sent; }
  WireBytes operator*(double times) const { return {received * times, sent * times}; }
};

/// One rank's part of a step that reads `rows[t]` distinct rows of table t and sends their
/// gradients.
WireBytes wire_bytes(std::span<const FeatureSpec> tables, std::span<const double> rows,
                     std::int64_t shards, const WireOptions& wire);

struct SampleTraffic {
  double batch = 1024;    ///< samples of one rank's step
  double ids = 26;        ///< ids per sample
  double distinct = 0.5;  ///< share of distinct ids in a batch
  WireOptions wire = {};
};
/// Bytes per sample.
WireBytes sample_wire_bytes(const FeatureSpec& row, std::int64_t shards,
                            const SampleTraffic& traffic);

/// Seconds of a snapshot at `bytes_per_second`; a row takes at most the bytes that it takes in
/// memory.
double snapshot_seconds(double row_bytes, double bytes_per_second);

}  // namespace strata
