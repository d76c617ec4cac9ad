/// Combines one channel to each shard into RowServers: divides a rank's requests and updates by
/// shard, and merges the answers.
///
/// Threads  one rank's; answers come from any.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/row_servers.h"
#include "strata/rowserver/shard/update_part.h"

namespace strata {

/// A channel from one rank to one shard. Calls return at once, or when there is room for their
/// message.
class ShardChannel {
 public:
  using Answer = std::function<void(std::vector<FeatureRows>, std::exception_ptr)>;
  using Done = std::function<void(std::exception_ptr)>;

  virtual ~ShardChannel() = default;
  virtual void read(std::vector<FeatureRead> reads, Answer answer) = 0;
  virtual void update(std::int64_t version, UpdatePart part) = 0;
  virtual void when_reached(std::int64_t version, Done done) = 0;
  virtual void save(std::int64_t version, Done done) = 0;
};

/// `rounded`: the precision to which arriving rows are rounded; none: the channels' encoding has
/// rounded them.
std::unique_ptr<RowServers> make_sharded_servers(
    std::vector<FeatureSpec> features, std::vector<std::unique_ptr<ShardChannel>> channels,
    std::optional<WirePrecision> rounded = std::nullopt);

}  // namespace strata
