#include "strata/plan/mesh_request.h"

#include <algorithm>

namespace strata {
namespace {

double seconds_at(double bytes, double rate) { return rate > 0 ? bytes / rate : 0; }

// What a rank passes on of `bytes` that n ranks scatter or gather.
double scattered(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

}  // namespace

MeshRequest mesh_request(const MeshOptions& options) {
  return {.dp = static_cast<int>(options.dp),
          .tp = static_cast<int>(options.tp),
          .zero = options.zero_policy(),
          .sequence_parallel = options.sequence_parallel};
}

std::vector<TensorTraffic> transformer_traffic(const Dataflow& dataflow, const CostTable& costs,
                                               const MeshRequest& request) {
  std::vector<TensorTraffic> traffic(dataflow.num_layers);
  if (request.tp == 1) return traffic;
  // With sequence parallelism a value between layers is a rank's part.
  const int parts = request.sequence_parallel ? request.tp : 1;
  std::vector<std::int64_t> in(dataflow.num_layers), out(dataflow.num_layers);
  for (std::size_t v = 0; v < dataflow.values.size(); ++v) {
    const std::int64_t bytes = costs.values[v].bytes * parts;
    const Value& value = dataflow.values[v];
    out[value.producer] = std::max(out[value.producer], bytes);
    for (const int consumer : value.consumers) in[consumer] = std::max(in[consumer], bytes);
  }
  for (int l = 0; l < dataflow.num_layers; ++l) {
    const int sums = in[l] > 0 && out[l] > 0 ? 2 : 1;
    traffic[l] = {.forward_bytes = sums * out[l], .backward_bytes = sums * in[l]};
  }
  return traffic;
}

double all_reduce_bytes(double bytes, int ranks) { return 2 * scattered(bytes, ranks); }

ReplicaTraffic replica_traffic(const ShardBytes& layer, const ShardLayout& layout) {
  const auto gradients = static_cast<double>(layer.own_gradients);
  if (layout.shards == 1) return {.reduce = all_reduce_bytes(gradients, layout.replicas)};
  // Scattered inside a shard group; each shard summed over the groups.
  const int ranks = layout.shards, groups = layout.replicas / ranks;
  ReplicaTraffic traffic{.reduce = scattered(gradients, ranks) +
                                   all_reduce_bytes(gradients / ranks, groups)};
  if (layer.shards.weights) {
    traffic.fetch = scattered(static_cast<double>(layer.fetched_weights), ranks);
  } else {
    traffic.gather = scattered(static_cast<double>(layer.weights), ranks);
  }
  return traffic;
}

CollectiveSeconds collective_seconds(const CostTable& costs, const ShardLayout& layout,
                                     double rate) {
  CollectiveSeconds seconds;
  for (const ShardBytes& layer : shard_bytes(costs, layout, /*reads_in_place=*/true)) {
    const ReplicaTraffic traffic = replica_traffic(layer, layout);
    seconds.fetch.push_back(seconds_at(traffic.fetch, rate));
    seconds.reduce.push_back(seconds_at(traffic.reduce, rate));
    seconds.gather.push_back(seconds_at(traffic.gather, rate));
  }
  return seconds;
}

CostTable with_mesh_seconds(CostTable costs, const MeshRequest& request) {
  for (std::size_t l = 0; l < request.tensor.size(); ++l) {
    const TensorTraffic& traffic = request.tensor[l];
    const auto seconds = [&](std::int64_t bytes) {
      return seconds_at(all_reduce_bytes(static_cast<double>(bytes), request.tp), request.rates.tp);
    };
    costs.layers[l].forward_seconds += seconds(traffic.forward_bytes);
    costs.layers[l].backward_seconds += seconds(traffic.backward_bytes);
  }
  for (ValueCost& value : costs.values) {
    if (value.transfer_seconds > 0) continue;
    value.transfer_seconds = seconds_at(static_cast<double>(value.bytes), request.rates.pp);
  }
  const int shards = request.zero.shards(request.dp);
  if (shards > 1) {
    for (LayerCost& layer : costs.layers) layer.update_seconds /= shards;
  }
  return costs;
}

}  // namespace strata
