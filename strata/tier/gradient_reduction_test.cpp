// Tests reductions whose result lives on a disk, where replicas read each other's part in a staging
// buffer that a rank reuses for another layer after the reduction; and reductions of several layers
// at once.
#include "strata/tier/gradient_reduction.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
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
    reduction.sum(store.acquire_to_copy(0, StateKind::kGradientShard), /*first=*/true,
                  /*last=*/true);
    const Pin pin = reduction.finish();
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

// Every rank, layer and position has a value of its own, which int8 rounds.
at::Tensor gradient_of(int rank, int layer) {
  return at::arange(layout().own_numel, at::kFloat).mul_(rank + 1).add_(100 * layer);
}

// A store of layers on the device, whose reductions have started.
struct StartedLayers {
  StartedLayers(Group& world, int layers, int shards, TrafficFormat format)
      : groups(make_mesh_groups(world, {{Axis::kData, world.size()}}, shards)),
        cuts(cut_layer(layout().own_numel, {.replicas = world.size(), .shards = shards})) {
    for (int layer = 0; layer < layers; ++layer) {
      store.insert(layer, layout(),
                   {.shard = cuts.shards[groups.shard.rank()], .traffic = {.gradients = format}});
      const Pin pin = store.acquire(layer, StateKind::kGradients);
      pin.zero_gradients();
      pin.open_gradients();
      pin.flat_gradients().copy_(gradient_of(world.rank(), layer));
      reductions.push_back(GradientReduction::start(
          groups, store.acquire(layer, StateKind::kGradients), cuts, /*sequence_parallel=*/false));
    }
  }
  void sum(int layer) {
    reductions[layer].sum(store.acquire_to_copy(layer, StateKind::kGradientShard), /*first=*/true,
                          /*last=*/true);
  }
  at::Tensor finish(int layer) { return reductions[layer].finish().gradient_shard().clone(); }

  MeshGroups groups;
  LayerCuts cuts;
  LayerStore store;
  std::deque<GradientReduction> reductions;
};

// The messages of layers arrive on ranks at different times.
TEST(GradientReduction, RanksMaySumLayersInDifferentOrders) {
  constexpr int kLayers = 3, kRanks = 4;
  for (const int shards : {1, 2})
    for (const TrafficFormat format : {TrafficFormat::kFull, TrafficFormat::kInt8})
      run_thread_ranks({.ranks = kRanks}, [&](Group& world, MemoryAccount&) {
        std::vector<at::Tensor> in_order;
        {
          StartedLayers layers(world, kLayers, shards, format);
          for (int layer = 0; layer < kLayers; ++layer) layers.sum(layer);
          for (int layer = 0; layer < kLayers; ++layer) in_order.push_back(layers.finish(layer));
          world.barrier();  // the next groups have the same numbers
        }
        StartedLayers turned(world, kLayers, shards, format);
        for (int i = 0; i < kLayers; ++i) turned.sum((i + world.rank()) % kLayers);
        for (int layer = 0; layer < kLayers; ++layer) {
          const at::Tensor& expected = in_order[static_cast<std::size_t>(layer)];
          EXPECT_TRUE(at::equal(turned.finish(layer), expected)) << layer;
          at::Tensor sum = gradient_of(0, layer);
          for (int rank = 1; rank < kRanks; ++rank) sum.add_(gradient_of(rank, layer));
          const FlatRange shard = turned.cuts.shards[turned.groups.shard.rank()];
          const double rounded = format == TrafficFormat::kFull ? 0 : 0.02;
          EXPECT_TRUE(at::allclose(expected, sum.narrow(0, shard.begin, shard.size()), rounded, 0))
              << layer;
        }
        world.barrier();
      });
}

TEST(GradientReduction, HasArrivedOnceAllOthersHaveStarted) {
  for (const TrafficFormat format : {TrafficFormat::kFull, TrafficFormat::kInt8})
    run_thread_ranks({.ranks = 3}, [&](Group& world, MemoryAccount&) {
      if (world.rank() == 2) world.barrier();  // the others have looked
      StartedLayers layers(world, 1, /*shards=*/1, format);
      if (world.rank() != 2) {
        EXPECT_FALSE(layers.reductions[0].has_arrived());
        world.barrier();
      }
      world.barrier();  // all have started
      EXPECT_TRUE(layers.reductions[0].has_arrived());
      layers.sum(0);
      layers.finish(0);
      world.barrier();
    });
}

}  // namespace
}  // namespace strata
