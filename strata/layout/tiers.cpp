#include "strata/layout/tiers.h"

#include <algorithm>

#include "strata/base/enum_names.h"

namespace strata {
namespace {

// Tied layers whose tie includes a layer on another rank.
LayerSet tied_across_ranks(const Dataflow& dataflow, const std::vector<int>& rank_of_layer) {
  LayerSet layers;
  for (const Tie& tie : dataflow.ties) {
    for (const int user : tie.users) {
      if (rank_of_layer[user] == rank_of_layer[tie.owner]) continue;
      layers.add(user);
      layers.add(tie.owner);
    }
  }
  return layers;
}

}  // namespace

const char* name_of(Tier tier) {
  using enum Tier;
  static constexpr EnumNames<Tier> kNames{{kDevice, "device"}, {kHost, "host"}, {kDisk, "disk"}};
  return kNames[tier];
}

// Gradients of tied layers are incomplete at their offload, and replicas still have to add theirs.
bool is_updated_at_once(const TierLayout& tiers, const LayerShards& shards, int layer,
                        const LayerSet& tied) {
  return tiers.updates_at_once && tiers[layer].offloads_gradients() && !shards.reduced &&
         !tied.has(layer);
}

TierLayout tiers_on_ranks(TierLayout requested, const Dataflow& dataflow,
                          const LayerSet& with_weights, const std::vector<int>& rank_of_layer,
                          const ShardLayout& shards) {
  const LayerSet shared = tied_across_ranks(dataflow, rank_of_layer);
  const LayerSet tied = tied_layers(dataflow);
  for (int layer = 0; layer < static_cast<int>(requested.layers.size()); ++layer) {
    LayerTiers& tiers = requested.layers[layer];
    if (!with_weights.has(layer)) tiers = {};
    if (!tiers.updates_on_host()) continue;
    if (shared.has(layer)) tiers.weights = Tier::kDevice;
    if (shards[layer].reduced) {
      tiers.gradients = tied.has(layer) ? Tier::kDevice : std::max(tiers.gradients, Tier::kHost);
    } else if (shared.has(layer)) {
      tiers.gradients = Tier::kDevice;
    } else if (requested.gradient_buffers > 0 &&
               is_updated_at_once(requested, shards[layer], layer, tied)) {
      tiers.gradients = Tier::kHost;
    }
  }
  return requested;
}

}  // namespace strata
