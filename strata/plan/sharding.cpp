#include "strata/plan/sharding.h"

#include <algorithm>
#include <cmath>

#include "strata/schedule/placement.h"

namespace strata {
namespace {

// `part` of `whole` equal pieces, rounded to the nearest.
std::int64_t scaled(std::int64_t bytes, std::int64_t part, std::int64_t whole) {
  if (whole == 0) return 0;
  return std::llround(static_cast<double>(bytes) * static_cast<double>(part) /
                      static_cast<double>(whole));
}

}  // namespace

LayerShares shares_of(const LayerCost& layer, bool tied, const ShardingRequest& request) {
  const std::int64_t elements = layer.weight_bytes / request.weight_element_bytes;
  const std::int64_t blocks = (elements + kShardElements - 1) / kShardElements;
  const std::int64_t ranks = request.shard_ranks;
  const std::int64_t shard = std::min(elements, (blocks + ranks - 1) / ranks * kShardElements);
  // A tied use's gradient has the size of its replica and goes to the owner, whole.
  const std::int64_t own =
      scaled(layer.gradient_bytes, layer.weight_bytes, layer.weight_bytes + layer.replica_bytes);

  LayerShares shares{.weights = layer.weight_bytes,
                     .gradients = layer.gradient_bytes,
                     .states = layer.state_bytes,
                     .full_gradients = own,
                     .pieces = request.replicas > 1 && request.copies_pieces ? own : 0};
  if (request.shards(1)) shares.states = scaled(layer.state_bytes, shard, elements);
  if (tied || elements == 0) return shares;
  if (request.shards(2)) {
    shares.gradients = scaled(own, shard, elements);
    shares.divides_gradients = true;
  }
  if (request.shards(3)) {
    shares.full_weights = layer.weight_bytes;
    shares.weights = scaled(layer.weight_bytes, shard, elements);
  }
  return shares;
}

std::vector<LayerShares> shares_of(const CostTable& costs, const Dataflow& dataflow,
                                   const ShardingRequest& request) {
  std::vector<LayerShares> shares;
  const std::vector<char> tied = schedule::tied_layers(dataflow);
  for (int l = 0; l < dataflow.num_layers; ++l) {
    shares.push_back(shares_of(costs.layers[l], tied[l], request));
  }
  return shares;
}

schedule::Sharing sharing_of(const ShardingRequest& request, const Dataflow& dataflow,
                             const CostTable& costs) {
  std::vector<char> has_weights;
  for (const LayerCost& layer : costs.layers) has_weights.push_back(layer.weight_bytes > 0);
  return schedule::make_sharing(dataflow, has_weights,
                                {.replicas = request.replicas,
                                 .shards = request.zero > 0 ? request.shard_ranks : 1,
                                 .zero = request.zero,
                                 .reduce_each = request.reduce_each,
                                 .partial_gradients = request.partial_gradients});
}

CostTable resident_costs(CostTable costs, const Dataflow& dataflow,
                         const ShardingRequest& request) {
  const std::vector<LayerShares> shares = shares_of(costs, dataflow, request);
  for (std::size_t l = 0; l < shares.size(); ++l) {
    costs.layers[l].weight_bytes = shares[l].weights;
    costs.layers[l].gradient_bytes = shares[l].gradients;
    costs.layers[l].state_bytes = shares[l].states;
  }
  return costs;
}

}  // namespace strata
