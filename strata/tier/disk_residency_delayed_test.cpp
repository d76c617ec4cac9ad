// Tests weights on a disk with an asynchronous device: a staging buffer is refilled after the copy
// from it, and a layer computes after the copy of its weights.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "strata/disk/disk_forms_test.h"
#include "strata/tier/delayed_device_test.h"
#include "strata/tier/disk_residency.h"
#include "strata/tier/store.h"

namespace strata {
namespace {

constexpr int kLayers = 6;

const LayerLayout& layout() {
  static const LayerLayout layout =
      make_layout({{.name = "w", .shape = {64, 32}, .decay = true}}, {false});
  return layout;
}
double times_numel(double value) { return value * static_cast<double>(layout().own_numel); }

struct DelayedDisk : testing::Test, DelayedDevice {
  DelayedDisk() {
    std::map<int, LayerOnDisk> layers;
    std::vector<LayerOnDisk> values;
    for (int layer = 0; layer < kLayers; ++layer) {
      layers[layer] = {.weights = layout().own_numel * 4,
                       .states = layout().own_numel * 4,
                       .fetches_weights = true,
                       .gradients = layout().own_numel * 4};
      values.push_back(layers[layer]);
    }
    ChunkFileOptions options;
    options.file.depth = 2;
    DiskFiles files;
    files.states = ChunkFile::create(folder.path("run"), chunk_table(values).bytes, options);
    options.slots = 1;
    files.gradients =
        ChunkFile::create(folder.path("run/gradients"), chunk_table(values).gradients, options);
    Backends backends{.disk = std::make_unique<DiskResidency>(std::move(files), layers, &host)};
    backends.host =
        std::make_unique<HostBackend>(LinkOptions{}, backends.disk.get(), nullptr, streams);
    store = std::make_unique<LayerStore>(std::move(backends), Residency::kUntilReleased,
                                         streams.compute, &host);
    for (int layer = 0; layer < kLayers; ++layer)
      store->insert(layer, layout(),
                    {.shard = {0, layout().own_numel},
                     .whole_weights = false,
                     .whole_gradients = false,
                     .tiers = {Tier::kDisk, Tier::kDisk, Tier::kDisk},
                     .optimizer_slots = 1});
    for (int layer = 0; layer < kLayers; ++layer) {
      store->acquire(layer, StateKind::kWeightShard).weight_shard().fill_(layer + 1);
      store->written(layer, StateKind::kWeightShard, {});
    }
  }
  void use(int layer, double& sum) {
    add_up(store->acquire(layer, StateKind::kWeights).flat_weights(), sum);
  }

  DiskScratch folder;
  MemoryAccount host{"host"};
  std::unique_ptr<LayerStore> store;
};

// More layers are in transit than there are staging buffers: each waits for the copy from its
// buffer, and the rank does not wait.
TEST_F(DelayedDisk, RefillsBufferAfterCopyFromIt) {
  in->hold();
  for (int layer = 0; layer < kLayers; ++layer) store->prefetch(layer, StateKind::kWeights);
  let_others_run();
  in->release();
  std::vector<double> sums(kLayers);
  for (int layer = 0; layer < kLayers; ++layer) use(layer, sums[layer]);
  compute->synchronize();
  for (int layer = 0; layer < kLayers; ++layer) EXPECT_EQ(sums[layer], times_numel(layer + 1));
}

// The device has only copies of ZeRO's shards.
TEST_F(DelayedDisk, RefillsBufferAfterCopyOfShard) {
  std::vector<at::Tensor> copies;
  in->hold();
  for (int layer = 0; layer < kLayers; ++layer) {
    copies.push_back(at::empty({layout().own_numel}, host_options(at::kFloat)));
    store->acquire_to_copy(layer, StateKind::kWeightShard)
        .bring_shard(StateKind::kWeightShard, 0, copies.back());
  }
  let_others_run();
  in->release();
  std::vector<double> sums(kLayers);
  for (int layer = 0; layer < kLayers; ++layer) add_up(copies[layer], sums[layer]);
  compute->synchronize();
  for (int layer = 0; layer < kLayers; ++layer) EXPECT_EQ(sums[layer], times_numel(layer + 1));
}

// A staging buffer is written to the disk after the copy to it, and refilled after the write.
TEST_F(DelayedDisk, WritesGradientAfterCopyToItsBuffer) {
  out->hold();
  const std::jthread later([this] {
    let_others_run();
    out->release();
  });
  for (int layer = 0; layer < kLayers; ++layer) {
    {
      const Pin pin = store->acquire(layer, StateKind::kGradients);
      pin.open_gradients();
      fill(pin.flat_gradients(), static_cast<float>(layer + 1));
    }
    {
      const Pin pin = store->acquire_unwaited(layer, StateKind::kGradientShard);
      store->release(layer, StateKind::kGradients);
    }
    store->written(layer, StateKind::kGradientShard,
                   store->state(layer).pending_on(StateKind::kGradientShard));
  }
  store->end_offload();
  for (int layer = 0; layer < kLayers; ++layer) {
    const Pin pin = store->acquire(layer, StateKind::kGradientShard);
    EXPECT_EQ(pin.gradient_shard().sum().item<double>(), times_numel(layer + 1)) << layer;
  }
}

TEST_F(DelayedDisk, FillsSlotAfterItsLastUse) {
  double first = 0, second = 0;
  store->prefetch(0, StateKind::kWeights);
  store->prefetch(1, StateKind::kWeights);
  use(1, second);
  compute->synchronize();
  compute->hold();
  const std::jthread later([this] {
    let_others_run();
    compute->release();
  });
  use(0, first);
  store->release(0, StateKind::kWeights);
  store->prefetch(2, StateKind::kWeights);
  use(2, second);
  compute->synchronize();
  EXPECT_EQ(first, times_numel(1));
  EXPECT_EQ(second, times_numel(3));
}

}  // namespace
}  // namespace strata
