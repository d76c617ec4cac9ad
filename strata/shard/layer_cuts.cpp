#include "strata/shard/layer_cuts.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {

std::vector<FlatRange> cut(FlatRange whole, int parts) {
  const std::int64_t blocks = (whole.size() + kShardCut - 1) / kShardCut;
  std::vector<FlatRange> ranges;
  for (int part = 0; part < parts; ++part) {
    const auto edge = [&](std::int64_t i) {
      return std::min(whole.begin + blocks * i / parts * kShardCut, whole.end);
    };
    ranges.push_back({edge(part), edge(part + 1)});
  }
  return ranges;
}

LayerCuts cut_layer(std::int64_t numel, int replicas, int shards) {
  STRATA_CHECK_EQ(replicas % shards, 0, "shard.cut_layer");
  LayerCuts cuts{.shards = cut({0, numel}, shards), .pieces = {}};
  for (int replica = 0; replica < replicas; ++replica) {
    const FlatRange shard = cuts.shards[replica % shards];
    cuts.pieces.push_back(cut(shard, replicas / shards)[replica / shards]);
  }
  return cuts;
}

}  // namespace strata
