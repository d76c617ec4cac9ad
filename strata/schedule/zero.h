/// Decides what the replicas of a stage shard among them (ZeRO), layer by layer: the one layout that
/// programs, ledger, stores and machines read.
///
/// Layers that take part in a tie keep their weights and gradients whole: uses on other ranks read
/// and add to them; only their optimizer states are sharded.
///
/// Source  Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054); hybrid: Zhang et al. 2022 (MiCS).
#pragma once

#include <cstdint>
#include <vector>

#include "strata/base/flat_range.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/layer_set.h"

namespace strata {

/// When replicas add their gradients.
enum class ReduceMode : std::uint8_t {
  kAuto,  ///< what fits; once, where nobody has decided
  kOnce,  ///< a step
  kEach,  ///< after each micro-batch, where gradients are sharded
};
const char* name_of(ReduceMode mode);  ///< "auto", "once", "each"

/// What a user asks of ZeRO, or a plan has decided.
struct ZeroPolicy {
  int stage = 0;        ///< 1 shards optimizer states, 2 also gradients, 3 also weights
  int shard_ranks = 0;  ///< replicas that share one set of shards (hybrid sharding); 0: all
  ReduceMode reduce = ReduceMode::kAuto;

  /// Shards of a layer; 1: every replica keeps the whole.
  int shards(int replicas) const {
    return stage == 0 ? 1 : shard_ranks == 0 ? replicas : shard_ranks;
  }
  friend bool operator==(const ZeroPolicy&, const ZeroPolicy&) = default;
};

/// Of one layer: what a replica keeps as a shard, and what it exchanges.
struct LayerShards {
  bool states = false;
  bool gradients = false;     ///< whole only from a backward to the end of its reduction
  bool weights = false;       ///< whole only from prefetch to release
  bool reduced = false;       ///< gradients are added over replicas
  bool reduced_each = false;  ///< after each micro-batch, else once a step

  /// Replicas update a shard each of weights that all of them keep whole.
  bool gathers_weights() const { return states && !weights; }
};

/// Of a model's layers; by default of one replica, which keeps and exchanges nothing.
struct ShardLayout {
  int replicas = 1;
  int shards = 1;  ///< of a layer
  std::vector<LayerShards> layers = {};

  LayerShards operator[](int layer) const { return layers.empty() ? LayerShards{} : layers[layer]; }
};

/// `with_weights`: the layers that own some. `partial_gradients`: ranks of a replica have each seen
/// a part of the sequence, so that gradients are added even where there is one replica.
ShardLayout shard_layout(const ZeroPolicy& policy, int replicas, const Dataflow& dataflow,
                         const LayerSet& with_weights, bool partial_gradients = false);

/// Where a layer's flat buffers are cut. There is one shard for each rank of a shard group; ranks with
/// the same place in different groups keep the same one. A sum over replicas is made in parts, one a
/// replica, each inside the shard that this replica keeps.
struct LayerCuts {
  std::vector<FlatRange> shards;  ///< one per place in a shard group
  std::vector<FlatRange> parts;   ///< one per replica, in dp order: what it sums and answers for
};
LayerCuts cut_layer(std::int64_t numel, const ShardLayout& layout);

}  // namespace strata
