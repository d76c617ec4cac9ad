// Adds what lives off the device for the whole step: on the host, on disk, and in staging buffers
// between them.
#include <algorithm>

#include "strata/plan/ledger/ledger.h"

namespace strata {
namespace {

void add_disk(Ledger& ledger, const LayerPlacement& placement,
              const std::vector<ShardBytes>& layers) {
  std::vector<std::vector<LayerOnDisk>> on_disk(ledger.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const LayerOnDisk& disk = layers[l].disk;
    const int rank = placement.rank[l];
    on_disk[rank].push_back(disk);
    ledger[rank].on_disk +=
        {.weights = disk.weights, .gradients = disk.gradients, .states = disk.states};
  }
  for (std::size_t r = 0; r < ledger.size(); ++r) {
    ledger[r].host.staging = disk_staging(on_disk[r]).bytes();
    ledger[r].disk_bytes = file_bytes(on_disk[r]);
  }
}

// Layers that share a gradient buffer have none of their own.
void share_gradient_buffers(Ledger& ledger, const Dataflow& dataflow,
                            const LayerPlacement& placement, const std::vector<ShardBytes>& layers,
                            const ShardLayout& shards, const TierLayout& tiers) {
  const LayerSet tied = tied_layers(dataflow);
  std::vector<int> borrowers(ledger.size());
  std::vector<std::int64_t> largest(ledger.size());
  for (int l = 0; l < dataflow.num_layers; ++l) {
    if (!is_updated_at_once(tiers, shards[l], l, tied)) continue;
    const int rank = placement.rank[l];
    const std::int64_t bytes = layers[l].host.gradients;
    ledger[rank].host.gradients -= bytes;
    ++borrowers[rank];
    largest[rank] = std::max(largest[rank], bytes);
  }
  for (std::size_t r = 0; r < ledger.size(); ++r)
    ledger[r].host.gradients += std::min(borrowers[r], tiers.gradient_buffers) * largest[r];
}

}  // namespace

void add_tiers(Ledger& ledger, const Dataflow& dataflow, const LayerPlacement& placement,
               const std::vector<ShardBytes>& layers, const ShardLayout& shards,
               const TierLayout& tiers, bool trains) {
  for (std::size_t l = 0; l < layers.size(); ++l) ledger[placement.rank[l]].host += layers[l].host;
  add_disk(ledger, placement, layers);
  if (tiers.gradient_buffers > 0 && trains)
    share_gradient_buffers(ledger, dataflow, placement, layers, shards, tiers);
}

}  // namespace strata
