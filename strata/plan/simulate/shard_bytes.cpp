// Shards are cut by elements and bytes are scaled accordingly: weights, gradients and states of a
// layer have different element sizes but the same cut.
#include "strata/plan/simulate/shard_bytes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "strata/base/flat_range.h"

namespace strata {
namespace {

// `part` of `whole` equal elements, rounded to the nearest byte.
std::int64_t scaled(std::int64_t bytes, std::int64_t part, std::int64_t whole) {
  if (whole == 0) return 0;
  return std::llround(static_cast<double>(bytes) * static_cast<double>(part) /
                      static_cast<double>(whole));
}

// Integers for matrices, the numbers themselves for the rest.
std::int64_t code_bytes(const LayerCost& layer, std::int64_t bytes, TrafficFormat format,
                        std::int64_t block, int weight_element_bytes) {
  if (format == TrafficFormat::kFull) return 0;
  const double all = static_cast<double>(bytes);
  const double matrices = all * static_cast<double>(layer.matrix_bytes) /
                          static_cast<double>(std::max<std::int64_t>(1, layer.weight_bytes));
  const double elements = static_cast<double>(layer.matrix_bytes) / weight_element_bytes;
  return std::llround(all - matrices + traffic_bytes(format, block, elements, matrices));
}

// The gradient of a tied use has the size of its replica and is sent to the owner whole.
std::int64_t own_gradient_bytes(const LayerCost& layer) {
  return scaled(layer.gradient_bytes, layer.weight_bytes, layer.weight_bytes + layer.replica_bytes);
}

// The parts of others' gradients that this rank sums, and the sums that other groups of shards send
// it, which may arrive before it has summed.
std::int64_t most_received(std::int64_t own, const ShardLayout& layout) {
  if (layout.replicas == 1) return 0;
  const std::int64_t sums = layout.replicas / layout.shards - 1;
  return std::max(own, (layout.replicas - 1 + sums) * own / layout.replicas);
}

}  // namespace

std::int64_t tied_bytes(const LayerCost& layer, Op op) {
  const bool gradient = op == Op::kSendTiedGradient || op == Op::kReceiveTiedGradient;
  return gradient ? layer.gradient_bytes - own_gradient_bytes(layer) : layer.replica_bytes;
}

ShardBytes shard_bytes(const LayerCost& layer, const LayerShards& shards, const ShardLayout& layout,
                       int weight_element_bytes, bool reads_in_place, const LayerTiers& tiers) {
  const std::int64_t elements = layer.weight_bytes / weight_element_bytes;
  const std::int64_t shard = largest_cut(elements, layout.shards);
  const std::int64_t own = own_gradient_bytes(layer);

  ShardBytes bytes{.shards = shards,
                   .weights = layer.weight_bytes,
                   .gradients = layer.gradient_bytes,
                   .states = layer.state_bytes,
                   .signs = layer.sign_bytes,
                   .own_gradients = own,
                   .received = reads_in_place ? 0 : most_received(own, layout)};
  const Traffic& traffic = layout.traffic;
  const auto code_of = [&](std::int64_t whole, TrafficFormat format) {
    return code_bytes(layer, whole, format, traffic.block, weight_element_bytes);
  };
  if (shards.reduced && layout.replicas > 1) bytes.gradient_code = code_of(own, traffic.gradients);
  if (bytes.gradient_code > 0) {
    const std::int64_t part = bytes.gradient_code / layout.replicas;
    bytes.received = reads_in_place ? 0 : bytes.gradient_code - part;
    if (layout.shards < layout.replicas) bytes.sum_code = part;
  }
  if (shards.states) {
    bytes.states = scaled(layer.state_bytes, shard, elements);
    bytes.signs = scaled(layer.sign_bytes, shard, elements);
  }
  if (shards.gradients) {
    bytes.opened_gradients = own;
    bytes.gradients = scaled(own, shard, elements);
  }
  if (shards.weights) {
    bytes.fetched_weights = layer.weight_bytes;
    bytes.weights = scaled(layer.weight_bytes, shard, elements);
  }
  if (tiers.updates_on_host()) {
    bytes.updated = {.weights = scaled(layer.weight_bytes, shard, elements),
                     .gradients = scaled(own, shard, elements),
                     .states = bytes.states};
    bytes.host = bytes.updated;
    bytes.states = 0;
    if (tiers.states == Tier::kDisk) {
      const bool on_host = tiers.updated_weights() == Tier::kHost;
      bytes.host.states = 0;
      if (!on_host) bytes.host.weights = 0;
      bytes.disk = {.weights = bytes.updated.weights,
                    .states = bytes.updated.states,
                    .weights_on_host = on_host,
                    .fetches_weights = tiers.fetches_weights()};
      if (tiers.gradients == Tier::kDisk)
        bytes.disk.gradients = std::exchange(bytes.host.gradients, 0);
    }
    if (shards.weights) {  // peers gather them where they are updated
      bytes.weights = 0;
      bytes.gathered_part = bytes.updated.weights;
    }
  }
  if (shards.coded_weights) bytes.weight_code = code_of(layer.weight_bytes, traffic.weights);
  if (bytes.weight_code > 0)
    bytes.gathered_part =
        scaled(bytes.weight_code, shard, elements) * (reads_in_place ? 1 : layout.shards);
  if (tiers.fetches_weights()) {
    bytes.fetched_weights = layer.weight_bytes;
    bytes.weights = 0;
  }
  if (tiers.offloads_gradients()) {
    bytes.opened_gradients = layer.gradient_bytes;
    bytes.gradients = 0;
  }
  return bytes;
}

std::vector<ShardBytes> shard_bytes(const CostTable& costs, const ShardLayout& layout,
                                    bool reads_in_place, const TierLayout& tiers) {
  std::vector<ShardBytes> all;
  for (int layer = 0; layer < static_cast<int>(costs.layers.size()); ++layer) {
    all.push_back(shard_bytes(costs.layers[layer], layout[layer], layout,
                              costs.weight_element_bytes, reads_in_place, tiers[layer]));
  }
  return all;
}

CostTable resident_costs(CostTable costs, const ShardLayout& layout, const TierLayout& tiers) {
  const std::vector<ShardBytes> shards = shard_bytes(costs, layout, /*reads_in_place=*/true, tiers);
  for (std::size_t l = 0; l < shards.size(); ++l) {
    costs.layers[l].weight_bytes = shards[l].weights;
    costs.layers[l].gradient_bytes = shards[l].gradients;
    costs.layers[l].state_bytes = shards[l].states;
  }
  return costs;
}

LayerSet layers_with_weights(const CostTable& costs) {
  LayerSet layers;
  for (int layer = 0; layer < static_cast<int>(costs.layers.size()); ++layer)
    if (costs.layers[layer].weight_bytes > 0) layers.add(layer);
  return layers;
}

}  // namespace strata
