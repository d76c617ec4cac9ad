#include "strata/serve/weight_tiers.h"

#include <filesystem>
#include <map>
#include <utility>

#include "strata/base/errors.h"
#include "strata/device/block_malloc.h"
#include "strata/tier/disk_residency.h"
#include "strata/tier/host_backend.h"

namespace strata {
namespace {

std::unique_ptr<DiskResidency> disk_backend(const std::map<int, LayerOnDisk>& layers,
                                            const WeightTiers& tiers, const Group& world,
                                            MemoryAccount& host) {
  if (layers.empty()) return nullptr;
  STRATA_CHECK(!tiers.disk.empty(), "serve.weight_tiers");
  std::vector<LayerOnDisk> values;
  for (const auto& [layer, bytes] : layers) values.push_back(bytes);
  DiskFiles files;
  files.states = ChunkFile::create(folder_of_rank(tiers, world, "weights"),
                                   chunk_table(values).bytes, tiers.file);
  return std::make_unique<DiskResidency>(
      std::move(files), layers, &host, [] {}, /*trace=*/nullptr, world.device());
}

}  // namespace

std::string folder_of_rank(const WeightTiers& tiers, const Group& world, const std::string& what) {
  if (tiers.disk.empty()) return "";
  return std::filesystem::path(tiers.disk) /
         ("rank-" + std::to_string(world.world_rank(world.rank())) + "-" + what);
}

at::ScalarType weight_type(const Sequential& model) {
  return model.value_specs({{.shape = {1, 1}, .dtype = at::kLong}}).front().dtype;
}

ShardPlacement weight_placement(const Sequential& model, const StepPlan& steps, int layer) {
  ShardPlacement placement = shard_placement(steps, layer, model.layout(layer), /*shard_rank=*/0);
  placement.dtype = weight_type(model);
  placement.trains = false;
  return placement;
}

Backends weight_backends(const Sequential& model, const StepPlan& steps,
                         const std::vector<int>& layers, const WeightTiers& tiers,
                         const Group& world, MemoryAccount& host) {
  Backends backends;
  if (steps.decisions().tiers.layers.empty()) return backends;
  return_large_blocks();
  std::map<int, LayerOnDisk> on_disk;
  for (const int layer : layers) {
    const ShardPlacement placement = weight_placement(model, steps, layer);
    if (!placement.on_disk(StateKind::kWeightShard)) continue;
    const auto element = static_cast<std::int64_t>(c10::elementSize(placement.dtype));
    on_disk[layer] = {.weights = placement.shard.size() * element, .fetches_weights = true};
  }
  backends.disk = disk_backend(on_disk, tiers, world, host);
  backends.host = std::make_unique<HostBackend>(tiers.link, backends.disk.get(), /*trace=*/nullptr,
                                                world.device());
  return backends;
}

}  // namespace strata
