/// Cuts a layer's flat buffers among the replicas of its stage (ZeRO).
///
/// A layer has one shard for each of the `shards` ranks of a shard group; ranks with the same place
/// in different groups keep the same shard (hybrid sharding; one shard group: plain ZeRO; groups of
/// one: every replica keeps everything). A sum over replicas is made in parts, one a replica, each
/// inside the shard that this replica keeps.
///
/// Source  Rajbhandari et al. 2020 (ZeRO), section 5; hybrid: Zhang et al. 2022 (MiCS).
/// Units   elements, in whole blocks (base/flat_range.h).
#pragma once

#include <cstdint>
#include <vector>

#include "strata/base/flat_range.h"

namespace strata {

struct LayerCuts {
  std::vector<FlatRange> shards;  ///< one per place in a shard group
  std::vector<FlatRange> parts;   ///< one per replica, in dp order: what it sums and answers for
};

/// `replicas` is a multiple of `shards`.
LayerCuts cut_layer(std::int64_t numel, int replicas, int shards);

}  // namespace strata
