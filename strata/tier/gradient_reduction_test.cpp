// Tests reductions whose result lives on a disk, where replicas read each other's part in a staging
// buffer that a rank reuses for another layer after the reduction; and reductions of several layers
// at once.
#include "strata/tier/gradient_reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
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
    reduction.sum(pin, /*first=*/true, /*last=*/true);
    reduction.finish(pin);
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

// The messages of two layers arrive on ranks at different times.
TEST(GradientReduction, RanksMaySumLayersInDifferentOrders) {
  constexpr int kLayers = 3, kRanks = 3;
  for (const TrafficFormat format : {TrafficFormat::kFull, TrafficFormat::kInt8})
    run_thread_ranks({.ranks = kRanks}, [&](Group& world, MemoryAccount&) {
      MeshGroups groups = make_mesh_groups(world, {{Axis::kData, kRanks}}, 1);
      const LayerCuts cuts = cut_layer(layout().own_numel, {.replicas = kRanks, .shards = 1});
      LayerStore store;
      std::deque<GradientReduction> reductions;
      for (int layer = 0; layer < kLayers; ++layer) {
        store.insert(layer, layout(),
                     {.shard = cuts.shards[groups.shard.rank()], .traffic = {.gradients = format}});
        const Pin pin = store.acquire(layer, StateKind::kGradients);
        pin.zero_gradients();
        pin.open_gradients();
        pin.flat_gradients().fill_(layer + 1);
        reductions.push_back(
            GradientReduction::start(groups, store.acquire(layer, StateKind::kGradients), cuts,
                                     /*sequence_parallel=*/false));
      }
      const auto shard_of = [&](int layer) {
        return store.acquire_to_copy(layer, StateKind::kGradientShard);
      };
      for (int i = 0; i < kLayers; ++i) {
        const int layer = (i + world.rank()) % kLayers;
        reductions[static_cast<std::size_t>(layer)].sum(shard_of(layer), /*first=*/true,
                                                        /*last=*/true);
      }
      for (int layer = 0; layer < kLayers; ++layer) {
        const Pin pin = shard_of(layer);
        reductions[static_cast<std::size_t>(layer)].finish(pin);
        EXPECT_TRUE(pin.gradient_shard().eq(kRanks * (layer + 1)).all().item<bool>()) << layer;
      }
      world.barrier();
    });
}

TEST(GradientReduction, HasArrivedOnceAllOthersHaveStarted) {
  run_thread_ranks({.ranks = 3}, [&](Group& world, MemoryAccount&) {
    MeshGroups groups = make_mesh_groups(world, {{Axis::kData, 3}}, 1);
    const LayerCuts cuts = cut_layer(layout().own_numel, {.replicas = 3, .shards = 1});
    LayerStore store;
    store.insert(0, layout(), {.shard = cuts.shards[groups.shard.rank()]});
    if (world.rank() == 2) world.barrier();  // the others have looked
    GradientReduction reduction =
        GradientReduction::start(groups, store.acquire(0, StateKind::kGradients), cuts, false);
    if (world.rank() != 2) {
      EXPECT_FALSE(reduction.has_arrived());
      world.barrier();
    }
    world.barrier();  // all have started
    EXPECT_TRUE(reduction.has_arrived());
    const Pin pin = store.acquire_to_copy(0, StateKind::kGradientShard);
    reduction.sum(pin, /*first=*/true, /*last=*/true);
    reduction.finish(pin);
    world.barrier();
  });
}

}  // namespace
}  // namespace strata
