/// Makes RowServers of one channel to each shard: divides what a rank asks and sends by shard, and puts
/// the answers together.
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

/// One rank's way to one shard. Calls return at once, or when there is room for what they send.
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

/// `rounded`: how rows are rounded when they arrive; none: channels have rounded them by sending them.
std::unique_ptr<RowServers> make_sharded_servers(
    std::vector<FeatureSpec> features, std::vector<std::unique_ptr<ShardChannel>> channels,
    std::optional<WirePrecision> rounded = std::nullopt);

}  // namespace strata
