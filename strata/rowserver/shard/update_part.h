/// What one rank adds to an update, and how the parts of all ranks become one update.
///
/// The sum does not depend on who came first: gradients of one id are added in rank order, in fp32.
///
/// Errors  UserError: features, ids or widths that the rows don't have; parts that don't agree. SystemError: bytes
///         that are no part (decode_part).
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

class RowStore;

/// Bytes of a message, which they keep.
struct MessageBytes {
  std::shared_ptr<const std::vector<std::byte>> message = nullptr;
  std::span<const std::byte> bytes = {};
};

struct UpdatePart {
  std::vector<FeatureRows> gradients;  ///< features ascending
  double rate_factor = 1;
  MessageBytes wire = {};  ///< as it came, for the log; empty if it did not come by wire
};

/// A part as messages and the log have it.
std::vector<std::byte> encode_part(std::int64_t version, const UpdatePart& part,
                                   const std::vector<FeatureSpec>& features,
                                   WirePrecision gradients);
/// `message`: what the bytes are of, for a part that keeps it.
UpdatePart decode_part(std::span<const std::byte> bytes, std::int64_t version,
                       const std::vector<FeatureSpec>& features,
                       std::shared_ptr<const std::vector<std::byte>> message = nullptr);

/// The server that holds an id's row.
int shard_of(int feature, std::uint64_t id, int shards);

/// Refuses a read or a part that no shard, or another one, could take.
void check_read(const std::vector<FeatureSpec>& features, std::span<const FeatureRead> reads,
                int shard, int shards);
void check_part(const std::vector<FeatureSpec>& features, std::int64_t version,
                const UpdatePart& part, int shard, int shards);

/// The sum of the parts, in the order given; it takes them apart.
UpdatePart merge_parts(std::vector<UpdatePart> parts);

/// Makes version `version` of the one before.
void apply_update(RowStore& rows, std::int64_t version, const UpdatePart& update);

}  // namespace strata
