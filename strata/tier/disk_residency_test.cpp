// Tests the order of reads, updates, writes and commits. The test decides when updates end and when
// ranks agree.
#include "strata/tier/disk_residency.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/device/account.h"
#include "strata/device/tensor_executor.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/tier/host_backend.h"
#include "strata/tier/store.h"

namespace strata {
namespace {

constexpr StateKinds kUpdated = StateKind::kWeightShard | StateKind::kOptimizer;
constexpr int kLayers = 8;

const LayerLayout& layout() {
  static const LayerLayout layout =
      make_layout({{.name = "w", .shape = {64, 32}, .decay = true}}, {false});
  return layout;
}

ShardPlacement placed(const LayerTiers& tiers, int slots) {
  return {.shard = {0, layout().own_numel},
          .whole_weights = !tiers.fetches_weights(),
          .whole_gradients = !tiers.offloads_gradients(),
          .tiers = tiers,
          .optimizer_slots = slots};
}

ChunkFileOptions options() {
  ChunkFileOptions options;
  options.file.depth = 2;
  return options;
}

struct DiskTier : testing::Test {
  explicit DiskTier(Tier weights = Tier::kDisk, int slots = 2, Tier gradients = Tier::kHost)
      : tiers{weights, gradients, Tier::kDisk}, slots(slots) {
    install_accounting_allocator();
    make();
  }

  void make() {
    std::map<int, LayerOnDisk> layers;
    std::vector<LayerOnDisk> values;
    for (int layer = 0; layer < kLayers; ++layer) {
      layers[layer] = {.weights = layout().own_numel * 4,
                       .states = layout().own_numel * 4 * slots,
                       .weights_on_host = tiers.updated_weights() != Tier::kDisk,
                       .fetches_weights = tiers.fetches_weights(),
                       .gradients = tiers.gradients == Tier::kDisk ? layout().own_numel * 4 : 0};
      values.push_back(layers[layer]);
    }
    if (!file_there) folder = std::make_unique<DiskScratch>();
    DiskFiles files;
    files.states =
        file_there ? ChunkFile::open(folder->path("run"), options())
                   : ChunkFile::create(folder->path("run"), chunk_table(values).bytes, options());
    file_there = true;
    ChunkFileOptions once = options();
    once.slots = 1;
    if (tiers.gradients == Tier::kDisk)
      files.gradients =
          ChunkFile::create(folder->path("run/gradients"), chunk_table(values).gradients, once);
    Backends backends{.disk =
                          std::make_unique<DiskResidency>(std::move(files), layers, &host, [this] {
                            if (agreement.valid()) agreement.wait();
                          })};
    disk = backends.disk.get();
    backends.host = std::make_unique<HostBackend>(LinkOptions{}, disk);
    store = std::make_unique<LayerStore>(std::move(backends), Residency::kUntilReleased, Device{},
                                         &host);
    for (int layer = 0; layer < kLayers; ++layer)
      store->insert(layer, layout(), placed(tiers, slots));
  }

  // Adds `value` to all bytes that the layer's update writes, when `gate` opens.
  void update(int layer, float value, std::shared_future<void> gate = {}) {
    std::vector<Completion> pending;
    std::vector<at::Tensor> written;
    {
      const Pin pin = store->acquire_unwaited(layer, kUpdated);
      pending = store->pending(pin);
      written = pin.slots();
      written.push_back(pin.weight_shard());
    }
    store->written(layer, kUpdated,
                   updates.submit(
                       [=] {
                         if (gate.valid()) gate.wait();
                         for (const at::Tensor& tensor : written) tensor.add_(value);
                       },
                       std::move(pending)));
  }

  void expect_values(int layer, float value) {
    const Pin pin = store->acquire(layer, kUpdated);
    std::vector<at::Tensor> all = pin.slots();
    all.push_back(pin.weight_shard());
    for (const at::Tensor& tensor : all) EXPECT_TRUE(tensor.eq(value).all().item<bool>()) << layer;
  }

  float fetched(int layer) {
    store->release(layer, StateKind::kWeights);
    const Pin pin = store->acquire(layer, StateKind::kWeights);
    return pin.flat_weights()[7].item<float>();
  }

  LayerTiers tiers;
  int slots;
  MemoryAccount host{"host"};
  bool file_there = false;
  std::shared_future<void> agreement;
  std::unique_ptr<DiskScratch> folder;
  DiskResidency* disk = nullptr;
  std::unique_ptr<LayerStore> store;
  Executor updates{tensor_executor("update")};  // last: it uses what is above
};

struct HostWeights : DiskTier {
  HostWeights() : DiskTier(Tier::kHost) {}
};

// An optimizer without states: a commit writes only the weights.
struct HostWeightsAlone : DiskTier {
  HostWeightsAlone() : DiskTier(Tier::kHost, /*slots=*/0) {}
};

constexpr auto kAWhile = std::chrono::milliseconds(50);

TEST_F(DiskTier, ReadsZerosBeforeFirstWrite) {
  for (int layer = 0; layer < kLayers; ++layer) expect_values(layer, 0);
  EXPECT_EQ(disk->use().bytes_read, 0);
  EXPECT_EQ(disk->use().bytes_written, 0);
}

// More updates than staging buffers are submitted before the first has run.
TEST_F(DiskTier, SubmitsAllUpdatesWithoutWaiting) {
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  for (int round = 1; round <= 3; ++round)
    for (int layer = 0; layer < kLayers; ++layer)
      update(layer, static_cast<float>(layer + 1), opened);
  gate.set_value();
  for (int layer = 0; layer < kLayers; ++layer) expect_values(layer, 3 * (layer + 1));
  for (int layer = 0; layer < kLayers; ++layer) EXPECT_EQ(fetched(layer), 3 * (layer + 1));
}

TEST_F(DiskTier, FetchReadsPrecedingUpdate) {
  std::promise<void> gate;
  update(2, 5, gate.get_future().share());
  store->prefetch(2, StateKind::kWeights);
  std::this_thread::sleep_for(kAWhile);
  gate.set_value();
  EXPECT_EQ(store->acquire(2, StateKind::kWeights).flat_weights()[0].item<float>(), 5);
}

TEST_F(DiskTier, ReadingWritesNothing) {
  for (int layer = 0; layer < kLayers; ++layer) update(layer, 1);
  expect_values(0, 1);
  disk->commit(1, "").wait();
  const std::int64_t written = disk->use().bytes_written;
  for (int layer = 0; layer < kLayers; ++layer) expect_values(layer, 1);
  for (int layer = 0; layer < kLayers; ++layer) fetched(layer);
  EXPECT_EQ(disk->use().bytes_written, written);
}

TEST_F(DiskTier, HostHoldsStagingBuffersOnly) {
  // And the gradients.
  EXPECT_EQ(host.current_bytes() - kLayers * layout().own_numel * 4, 3 * 3 * 8192 + 2 * 8192);
  for (int layer = 0; layer < kLayers; ++layer) update(layer, 1);
  for (int layer = 0; layer < kLayers; ++layer) expect_values(layer, 1);
  EXPECT_EQ(host.peak_bytes(), host.current_bytes());
}

TEST_F(DiskTier, MorePinsThanBuffersAreAnInternalError) {
  std::vector<Pin> pins;
  for (int layer = 0; layer < 3; ++layer) pins.push_back(store->acquire(layer, kUpdated));
  EXPECT_THROW((void)store->acquire(3, kUpdated), InternalError);
}

// The staging buffer of layer 3 waits for an update; layer 4 gets another one.
TEST_F(DiskTier, StartsReadWhenItsBufferIsFree) {
  for (int layer = 0; layer < kLayers; ++layer) update(layer, static_cast<float>(layer));
  for (int layer = 0; layer < kLayers; ++layer) expect_values(layer, static_cast<float>(layer));
  const Promise updated;
  {
    const Pin pin = store->acquire_unwaited(0, kUpdated);
  }
  store->written(0, kUpdated, updated.completion());
  for (const int layer : {1, 2}) expect_values(layer, static_cast<float>(layer));
  const Pin waits = store->acquire_unwaited(3, kUpdated);
  const Pin reads = store->acquire_unwaited(4, kUpdated);
  const Completion third = all_of(store->pending(waits));
  all_of(store->pending(reads)).wait();
  EXPECT_EQ(reads.weight_shard()[0].item<float>(), 4);
  EXPECT_FALSE(third.ready());
  updated.complete();
  third.wait();
  EXPECT_EQ(waits.weight_shard()[0].item<float>(), 3);
}

TEST_F(DiskTier, RefusesToWritePinnedKind) {
  const Pin pin = store->acquire(0, kUpdated);
  EXPECT_THROW(store->written(0, kUpdated, {}), InternalError);
}

TEST_F(DiskTier, FailsCommitAfterFailedUpdate) {
  update(0, 1);
  {
    const Pin pin = store->acquire(1, kUpdated);
  }
  store->written(1, kUpdated, updates.submit([] { throw std::runtime_error("no update"); }));
  EXPECT_THROW(disk->commit(1, "").wait(), std::runtime_error);
  EXPECT_FALSE(disk->file().committed_step().has_value());
}

// A commit holds the last step, and the writes of the next step wait until all ranks have
// committed.
TEST_F(DiskTier, StartsWritesOfNextStepAfterAllRanksHaveCommitted) {
  for (int layer = 0; layer < kLayers; ++layer) update(layer, 1);
  std::promise<void> agreed;
  agreement = agreed.get_future().share();
  const Completion committed = disk->commit(1, "one");
  for (int layer = 0; layer < 3; ++layer) update(layer, 10);  // their writes wait, the rank doesn't
  const double late = now_seconds() + 30;                     // of a slow disk
  while (disk->file().committed_step() != 1 && now_seconds() < late) std::this_thread::yield();
  EXPECT_FALSE(committed.ready());
  EXPECT_EQ(disk->file().committed_step(), 1);  // this rank's, and it may have to go back
  const std::int64_t written = disk->use().bytes_written;
  std::this_thread::sleep_for(kAWhile);
  EXPECT_EQ(disk->use().bytes_written, written);
  agreed.set_value();
  committed.wait();
  expect_values(2, 11);
  EXPECT_GT(disk->use().bytes_written, written);
  // No commit has the writes of the next step.
  store.reset();
  agreement = {};
  make();
  EXPECT_EQ(disk->file().user_text(), "one");
  for (int layer = 0; layer < kLayers; ++layer) expect_values(layer, 1);
}

// Weights on the host are written for a commit. The next updates wait for that; fetches do not.
TEST_F(HostWeights, CommitHoldsWeightsOfItsStep) {
  for (int layer = 0; layer < kLayers; ++layer) update(layer, 1);
  std::promise<void> first;
  update(3, 1, first.get_future().share());
  for (int layer = 0; layer < kLayers; ++layer) disk->keep(store->state(layer));
  const Completion committed = disk->commit(1, "");
  update(3, 100);
  update(5, 100);
  first.set_value();
  committed.wait();
  EXPECT_EQ(fetched(3), 102);
  expect_values(5, 101);
  store.reset();
  make();
  for (int layer = 0; layer < kLayers; ++layer) {
    disk->restore(store->state(layer));
    expect_values(layer, layer == 3 ? 2 : 1);
  }
}

// No states are written, so the write of the weights itself has to wait for the update.
TEST_F(HostWeightsAlone, CommitWaitsForUpdateAndNextUpdateForCommit) {
  for (int layer = 0; layer < kLayers; ++layer) update(layer, 1);
  std::promise<void> late;
  update(3, 1, late.get_future().share());
  for (int layer = 0; layer < kLayers; ++layer) disk->keep(store->state(layer));
  const Completion committed = disk->commit(1, "");
  std::this_thread::sleep_for(kAWhile);
  EXPECT_FALSE(committed.ready());
  late.set_value();
  committed.wait();
  // No later commit starts before all ranks have the second one.
  std::promise<void> agreed;
  agreement = agreed.get_future().share();
  disk->commit(2, "");
  for (int layer = 0; layer < kLayers; ++layer) disk->keep(store->state(layer));
  const Completion third = disk->commit(3, "");
  update(5, 100);
  std::this_thread::sleep_for(kAWhile);
  EXPECT_EQ(fetched(4), 1);
  EXPECT_EQ(store->state(5).weight_shard.bytes()[0].item<float>(), 1);
  agreed.set_value();
  third.wait();
  expect_values(5, 101);
  store.reset();
  agreement = {};
  make();
  for (int layer = 0; layer < kLayers; ++layer) {
    disk->restore(store->state(layer));
    expect_values(layer, layer == 3 ? 2 : 1);
  }
}

TEST_F(HostWeights, FetchDoesNotWaitForCommit) {
  update(0, 1);
  expect_values(0, 1);
  std::promise<void> agreed;
  agreement = agreed.get_future().share();
  disk->commit(1, "");
  disk->keep(store->state(0));  // waits for the commit
  EXPECT_EQ(fetched(0), 1);
  agreed.set_value();
}

// A load writes without an update.
TEST_F(HostWeights, WriteWithoutUpdateWaitsForCommit) {
  update(0, 1);
  expect_values(0, 1);
  std::promise<void> agreed;
  agreement = agreed.get_future().share();
  disk->commit(1, "");
  disk->keep(store->state(0));
  std::atomic<bool> may_write = false;
  const std::jthread later([&] {
    std::this_thread::sleep_for(kAWhile);
    may_write = true;
    agreed.set_value();
  });
  const Pin pin = store->acquire(0, kUpdated);
  EXPECT_TRUE(may_write);
}

// ---- Gradients

struct GradientsOnDisk : DiskTier {
  GradientsOnDisk() : DiskTier(Tier::kDisk, 2, Tier::kDisk) {}

  void begin_step() {
    for (int layer = 0; layer < kLayers; ++layer)
      store->acquire(layer, StateKind::kGradients).zero_gradients();
  }
  void add(int layer, float value) {
    store->acquire(layer, StateKind::kGradientShard).gradient_shard().add_(value);
    store->written(layer, StateKind::kGradientShard, {});
  }
  void expect_gradient(int layer, float value) {
    const Pin pin = store->acquire(layer, StateKind::kGradientShard);
    EXPECT_TRUE(pin.gradient_shard().eq(value).all().item<bool>()) << layer;
  }
};

// More layers than staging buffers, in the order of a backward, in two parts each.
TEST_F(GradientsOnDisk, KeepTheirValues) {
  for (int step = 0; step < 3; ++step) {
    begin_step();
    for (const int part : {1, 2})
      for (int layer = kLayers - 1; layer >= 0; --layer)
        add(layer, static_cast<float>(part * (layer + 1) + step));
    for (int layer = 0; layer < kLayers; ++layer)
      expect_gradient(layer, static_cast<float>(3 * (layer + 1) + 2 * step));
  }
}

TEST_F(GradientsOnDisk, StartFromZerosWithoutReadInNextStep) {
  begin_step();
  for (int layer = 0; layer < kLayers; ++layer) add(layer, 5);
  begin_step();
  const std::int64_t read = disk->use().bytes_read;
  for (int layer = 0; layer < kLayers; ++layer) expect_gradient(layer, 0);
  EXPECT_EQ(disk->use().bytes_read, read);
}

// A staging buffer is refilled after its reader has ended.
TEST_F(GradientsOnDisk, StayUntilTheirReadersHaveEnded) {
  begin_step();
  for (int layer = 0; layer < kLayers; ++layer) add(layer, static_cast<float>(layer));
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::vector<Completion> read;
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<Completion> pending;
    at::Tensor gradient;
    {
      const Pin pin = store->acquire_unwaited(layer, StateKind::kGradientShard);
      pending = store->pending(pin);
      gradient = pin.gradient_shard();
    }
    read.push_back(updates.submit(
        [=] {
          if (layer == 0) opened.wait();
          EXPECT_TRUE(gradient.eq(layer).all().item<bool>()) << layer;
        },
        std::move(pending)));
    store->read_until(layer, StateKind::kGradientShard, read.back());
  }
  gate.set_value();
  for (const Completion& reader : read) reader.wait();
}

// Gradients belong to one step.
TEST_F(GradientsOnDisk, AreNotPartOfCommits) {
  begin_step();
  for (int layer = 0; layer < kLayers; ++layer) {
    update(layer, 3);
    add(layer, 5);
  }
  disk->commit(1, "{}").wait();
  EXPECT_EQ(disk->file().num_chunks(), 2 * kLayers);
  store.reset();
  make();
  for (int layer = 0; layer < kLayers; ++layer) {
    expect_values(layer, 3);
    expect_gradient(layer, 0);
  }
}

}  // namespace
}  // namespace strata
