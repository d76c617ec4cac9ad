/// Decides, layer by layer, what the replicas of a stage shard among them (ZeRO). Programs, ledger,
/// stores and machines all read this one layout.
///
/// Tied layers keep their weights and gradients whole, because uses on other ranks read and add to
/// them; only their optimizer states are sharded.
///
/// Source  Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054); hybrid: Zhang et al. 2022 (MiCS).
#pragma once

#include <cstdint>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/layout/dataflow.h"
#include "strata/layout/layer_set.h"
#include "strata/layout/traffic_format.h"

namespace strata {

/// When replicas add their gradients.
enum class ReduceMode : std::uint8_t {
  kAuto,  ///< whichever fits the budget; kOnce if no planner has decided
  kOnce,  ///< once a step
  kEach,  ///< after each micro-batch, where gradients are sharded
};
const char* name_of(ReduceMode mode);  ///< "auto", "once", "each"

/// The settings that a user requests, or a plan has decided, of what replicas shard and send.
struct ZeroPolicy {
  int stage = 0;        ///< 1 shards optimizer states, 2 also gradients, 3 also weights
  int shard_ranks = 0;  ///< replicas that share one set of shards (hybrid sharding); 0: all
  ReduceMode reduce = ReduceMode::kAuto;
  Traffic traffic = {};

  /// The number of shards of a layer; 1: every replica keeps the whole.
  int shards(int replicas) const {
    return stage == 0 ? 1 : shard_ranks == 0 ? replicas : shard_ranks;
  }
  friend bool operator==(const ZeroPolicy&, const ZeroPolicy&) = default;
};

/// The most replicas, a multiple of `unit`, that can share one set of shards if there are to be
/// several such groups; 1: none greater than 1 divides all.
int most_in_group(int replicas, int unit = 1);

/// What a replica keeps of one layer as a shard, and what it exchanges.
struct LayerShards {
  bool states = false;
  bool gradients = false;     ///< whole only from a backward to the end of its reduction
  bool weights = false;       ///< whole only from prefetch to release
  bool reduced = false;       ///< replicas add their gradients
  bool reduced_each = false;  ///< after each micro-batch, else once a step
  /// Weights are gathered in the traffic's format: not those that ranks gather only because they
  /// live on a host or disk.
  bool coded_weights = false;

  /// Whether replicas update one shard each of weights that all of them keep whole.
  bool gathers_weights() const { return states && !weights; }
};

/// The shards of all layers; by default one replica, which keeps everything and exchanges nothing.
struct ShardLayout {
  int replicas = 1;
  int shards = 1;  ///< shards of each layer
  Traffic traffic = {};
  std::vector<LayerShards> layers = {};

  LayerShards operator[](int layer) const { return layers.empty() ? LayerShards{} : layers[layer]; }
};

/// `with_weights`: the layers that own weights. `partial_gradients`: each rank of a replica has
/// processed a part of the sequence, so gradients are added even with a single replica.
ShardLayout shard_layout(const ZeroPolicy& policy, int replicas, const Dataflow& dataflow,
                         const LayerSet& with_weights, bool partial_gradients = false);

/// The positions at which a layer's flat buffers are divided. There is one shard per rank of a
/// shard group; ranks with the same position in different groups keep the same shard. A sum over
/// replicas is made in parts, one per replica, each inside the shard that this replica keeps.
struct LayerCuts {
  std::vector<FlatRange> shards;  ///< one per rank of a shard group
  /// one per replica, in dp order: the part that it sums and owns
  std::vector<FlatRange> parts;
};
/// Divides flat buffers of `numel` elements. InternalError unless shards divide the replicas.
LayerCuts cut_layer(std::int64_t numel, const ShardLayout& layout);

}  // namespace strata
