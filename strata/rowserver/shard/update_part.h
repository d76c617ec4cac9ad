/// One rank's part of an update, and the merge of all ranks' parts into one update.
///
/// The sum does not depend on the order of arrival: gradients of one id are added in rank order, in
/// fp32.
///
/// Errors   UserError: features, ids or widths that the rows do not have; parts that disagree.
///          SystemError: bytes that are not a part (decode_part).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/feature.h"
#include "strata/rowserver/row_servers.h"

namespace strata {

class HelperThreads;
class RowStore;

/// Bytes of a message, and their owner.
struct MessageBytes {
  std::shared_ptr<const std::vector<std::byte>> message = nullptr;
  std::span<const std::byte> bytes = {};
};

struct UpdatePart {
  std::vector<FeatureRows> gradients;  ///< ascending by feature
  double rate_factor = 1;
  /// as received, for the log; empty if it was not received from the network
  MessageBytes wire = {};
};

/// Encodes a part for messages and the log.
std::vector<std::byte> encode_part(std::int64_t version, const UpdatePart& part,
                                   const std::vector<FeatureSpec>& features,
                                   WirePrecision gradients);
/// `message`: owner of `bytes`, for a part that keeps them.
UpdatePart decode_part(std::span<const std::byte> bytes, std::int64_t version,
                       const std::vector<FeatureSpec>& features,
                       std::shared_ptr<const std::vector<std::byte>> message = nullptr);

/// Returns the server that holds the row of an id.
int shard_of(int feature, std::uint64_t id, int shards);

/// Throws for a read or a part that no shard, or only another shard, accepts.
void check_read(const std::vector<FeatureSpec>& features, std::span<const FeatureRead> reads,
                int shard, int shards);
void check_part(const std::vector<FeatureSpec>& features, std::int64_t version,
                const UpdatePart& part, int shard, int shards);

/// Returns the sum of the parts in the given order; consumes them. `threads` share the features.
UpdatePart merge_parts(std::vector<UpdatePart> parts, HelperThreads& threads);

/// Turns version `version` - 1 of the rows into version `version`. `threads` share the features if
/// these are independent.
void apply_update(RowStore& rows, std::int64_t version, const UpdatePart& update,
                  HelperThreads& threads);

}  // namespace strata
