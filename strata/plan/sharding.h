/// Says what a rank holds of a layer whose weights, gradients and states its replicas share out.
///
/// ZeRO stage 1 shards states, 2 also gradients, 3 also weights. Shards are cut at multiples of
/// 1,024 elements; the bytes are those of the fullest rank, which has the rounded-up share of every
/// layer. Layers that take part in a tie share out only their states.
///
/// Source  ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054).
/// Units   bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/schedule/costs.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/sharing.h"

namespace strata {

inline constexpr std::int64_t kShardElements = 1024;

struct ShardingRequest {
  int replicas = 1;          ///< that add their gradients
  int shard_ranks = 1;       ///< replicas that share one set of shards
  int zero = 0;              ///< stage
  bool reduce_each = false;  ///< gradients are added after every micro-batch, not once a step
  int weight_element_bytes = 4;
  bool partial_gradients = false;  ///< sequence parallelism: reductions even without replicas
  bool copies_pieces = true;  ///< false: a reduction reads the others' gradients where they are

  bool shards(int from_stage) const { return zero >= from_stage && shard_ranks > 1; }
};

/// Of one layer on one rank.
struct LayerShares {
  std::int64_t weights = 0;         ///< for the whole step
  std::int64_t gradients = 0;       ///< for the whole step; buffers of tied uses included
  std::int64_t states = 0;          ///< for the whole step
  std::int64_t full_weights = 0;    ///< from fetch to release; 0 if it keeps them
  std::int64_t full_gradients = 0;  ///< its own, whole; what a reduction moves
  bool divides_gradients = false;   ///< whole only from the first backward to the reduction
  std::int64_t pieces = 0;          ///< received by a reduction, from its start to its end
};

LayerShares shares_of(const LayerCost& layer, bool tied, const ShardingRequest& request);
std::vector<LayerShares> shares_of(const CostTable& costs, const Dataflow& dataflow,
                                   const ShardingRequest& request);

/// What programs must know of it.
schedule::Sharing sharing_of(const ShardingRequest& request, const Dataflow& dataflow,
                             const CostTable& costs);

/// The same model with what a rank holds for the whole step in place of the whole buffers.
CostTable resident_costs(CostTable costs, const Dataflow& dataflow, const ShardingRequest& request);

}  // namespace strata
