// Tests reductions whose result lives on a disk: replicas read each other's part in a staging
// buffer, which a rank reuses for another layer after the reduction.
#include "strata/tier/gradient_reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"

namespace strata {
namespace {

constexpr int kRounds = 20;

const LayerLayout& layout() {
  static const LayerLayout layout =
      make_layout({{.name = "w", .shape = {1024, 1024}, .decay = true}}, {false});
  return layout;
}

// A rank's store of one layer whose state is on a disk.
std::unique_ptr<LayerStore> store_on_disk(MeshGroups& groups, FlatRange shard,
                                          const std::string& folder) {
  const std::int64_t bytes = 4 * shard.size();
  const std::vector<LayerOnDisk> layers{
      {.weights = bytes, .states = bytes, .fetches_weights = true, .gradients = bytes}};
  const ChunkTable table = chunk_table(layers);
  ChunkFileOptions options;
  options.file.depth = 2;
  DiskFiles files;
  files.states = ChunkFile::create(folder, table.bytes, options);
  options.slots = 1;
  files.gradients = ChunkFile::create(folder + "/gradients", table.gradients, options);
  Backends backends{.disk = std::make_unique<DiskResidency>(
                        std::move(files), std::map{std::pair(0, layers[0])}, /*host=*/nullptr)};
  backends.host = std::make_unique<HostBackend>(LinkOptions{}, backends.disk.get());
  backends.peers = std::make_unique<PeerBackend>(groups.shard, backends.host.get());
  auto store = std::make_unique<LayerStore>(std::move(backends));
  store->insert(0, layout(),
                {.shard = shard,
                 .whole_weights = false,
                 .whole_gradients = false,
                 .gathered_weights = groups.shard.size() > 1,
                 .tiers = {Tier::kDisk, Tier::kDisk, Tier::kDisk},
                 .optimizer_slots = 1});
  return store;
}

// Overwrites the end of the rank's part as soon as the reduction returns, as the next layer would.
void reduce_and_overwrite(MeshGroups& groups, const LayerCuts& cuts, LayerStore& store,
                          double gradient, double sum) {
  {
    const Pin pin = store.acquire(0, StateKind::kGradients);
    pin.zero_gradients();
    pin.open_gradients();
    pin.flat_gradients().fill_(gradient);
  }
  GradientReduction reduction =
      GradientReduction::start(groups, store.acquire(0, StateKind::kGradients), cuts, false);
  {
    const Pin pin = store.acquire_to_copy(0, StateKind::kGradientShard);
    reduction.finish(pin, /*first=*/true, /*last=*/true);
    const FlatRange shard = pin.placement().shard;
    const FlatRange own = cuts.parts[groups[Axis::kData].rank()];
    at::Tensor gradients = pin.gradient_shard();
    gradients[own.end - 1 - shard.begin].fill_(std::nan(""));
    const at::Tensor wrong = gradients.ne(sum);
    EXPECT_EQ(wrong.sum().item<std::int64_t>(), 1) << "a replica has read bytes of another layer";
  }
  store.written(0, StateKind::kGradientShard, {});
}

TEST(GradientReductionOnDisk, ReturnsAfterReplicasHaveReadItsPart) {
  for (const auto& [ranks, shards] : {std::pair(2, 1), std::pair(4, 2)}) {
    const DiskScratch folder;
    run_thread_ranks({.ranks = ranks}, [&](Group& world, MemoryAccount&) {
      MeshGroups groups = make_mesh_groups(world, {{Axis::kData, ranks}}, shards);
      const LayerCuts cuts = cut_layer(layout().own_numel, {.replicas = ranks, .shards = shards});
      const auto store = store_on_disk(groups, cuts.shards[groups.shard.rank()],
                                       folder.path("rank" + std::to_string(world.rank())));
      for (int round = 0; round < kRounds; ++round) {
        const int sum = ranks * (ranks + 1) / 2 + ranks * round;
        reduce_and_overwrite(groups, cuts, *store, world.rank() + 1 + round, sum);
      }
      world.barrier();
    });
  }
}

}  // namespace
}  // namespace strata
