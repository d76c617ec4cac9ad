#include "strata/shard/layer_cuts.h"

#include "strata/base/errors.h"

namespace strata {

LayerCuts cut_layer(std::int64_t numel, int replicas, int shards) {
  STRATA_CHECK_EQ(replicas % shards, 0, "shard.cut_layer");
  LayerCuts cuts{.shards = cut({0, numel}, shards), .parts = {}};
  for (int replica = 0; replica < replicas; ++replica) {
    const FlatRange shard = cuts.shards[replica % shards];
    cuts.parts.push_back(cut(shard, replicas / shards)[replica / shards]);
  }
  return cuts;
}

}  // namespace strata
