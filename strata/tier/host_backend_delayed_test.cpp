// Tests copies between host and device with an asynchronous device: the device waits instead of the
// rank, and a missing wait changes a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "strata/device/account.h"
#include "strata/device/tensor_executor.h"
#include "strata/tier/delayed_device_test.h"
#include "strata/tier/device_slots.h"
#include "strata/tier/store.h"

namespace strata {
namespace {

constexpr LayerTiers kAllOnHost{Tier::kHost, Tier::kHost, Tier::kHost};
constexpr LayerTiers kZeroOffload{Tier::kDevice, Tier::kHost, Tier::kHost};
constexpr StateKinds kUpdated = StateKind::kWeightShard | StateKind::kGradientShard;

const LayerLayout& layout() {
  static const LayerLayout layout =
      make_layout({{.name = "w", .shape = {32, 32}, .decay = true}}, {false});
  return layout;
}
double times_numel(double value) { return value * static_cast<double>(layout().own_numel); }

struct DelayedHostTier : testing::Test, DelayedDevice {
  DelayedHostTier() { make(kAllOnHost); }

  void make(const LayerTiers& tiers, int gradient_buffers = 0) {
    auto backend = std::make_unique<HostBackend>(LinkOptions{}, nullptr, nullptr, streams);
    if (gradient_buffers > 0) backend->make_gradient_buffers(gradient_buffers, layout().own_numel);
    store = std::make_unique<LayerStore>(Backends{.host = std::move(backend)},
                                         Residency::kUntilReleased, streams.compute, &host);
    for (int layer = 0; layer < kLayers; ++layer)
      store->insert(layer, layout(),
                    {.shard = {0, layout().own_numel},
                     .whole_weights = !tiers.fetches_weights(),
                     .whole_gradients = !tiers.offloads_gradients(),
                     .borrows_gradients = gradient_buffers > 0,
                     .tiers = tiers});
  }

  void set_weights(int layer, float value) {
    store->acquire(layer, StateKind::kWeightShard).weight_shard().fill_(value);
    store->written(layer, StateKind::kWeightShard, {});
  }
  // Like a forward: the kernel runs later.
  void use(int layer, double& sum) {
    add_up(store->acquire(layer, StateKind::kWeights).flat_weights(), sum);
  }
  // Like a backward and its offload.
  void make_gradient(int layer, float value) {
    {
      const Pin pin = store->acquire(layer, StateKind::kGradients);
      pin.open_gradients();
      fill(pin.flat_gradients(), value);
    }
    store->release(layer, StateKind::kGradients);
  }
  // The host's sum, after the gradient has arrived.
  double gradient(int layer) {
    return store->acquire(layer, StateKind::kGradientShard).gradient_shard().sum().item<double>();
  }
  void compute_done() const { compute->synchronize(); }

  static constexpr int kLayers = 6;
  MemoryAccount host{"host"};
  std::unique_ptr<LayerStore> store;
};

TEST_F(DelayedHostTier, UsesWeightsAfterTheirArrival) {
  set_weights(0, 3);
  in->hold();
  store->prefetch(0, StateKind::kWeights);
  double sum = 0;
  use(0, sum);
  let_others_run();
  in->release();
  compute_done();
  EXPECT_EQ(sum, times_numel(3));
}

TEST_F(DelayedHostTier, FillsSlotAfterItsLastUse) {
  set_weights(0, 3);
  set_weights(1, 5);
  double first = 0, second = 0;
  store->prefetch(0, StateKind::kWeights);
  compute_done();
  compute->hold();
  const void* place = nullptr;
  {
    const Pin pin = store->acquire(0, StateKind::kWeights);
    place = pin.flat_weights().const_data_ptr();
    add_up(pin.flat_weights(), first);
  }
  store->release(0, StateKind::kWeights);
  store->prefetch(1, StateKind::kWeights);
  EXPECT_EQ(store->state(1).weights.bytes().const_data_ptr(), place);
  let_others_run();
  compute->release();
  use(1, second);
  compute_done();
  EXPECT_EQ(first, times_numel(3));
  EXPECT_EQ(second, times_numel(5));
}

// Weights stay on the device and are updated on the host, part by part.
TEST_F(DelayedHostTier, CopiesPartAfterItsLastUseAndUsesItAfterArrival) {
  set_weights(0, 3);
  const at::Tensor x = compute->empty({100}, at::kFloat);
  fill(x, 1);
  double before = 0, after = 0;
  compute->hold();
  add_up(x, before);
  store->acquire_to_copy(0, StateKind::kWeightShard)
      .bring_shard(StateKind::kWeightShard, 10, x.narrow(0, 50, 50));
  add_up(x, after);
  let_others_run();
  compute->release();
  compute_done();
  EXPECT_EQ(before, 100);
  EXPECT_EQ(after, 50 + 3 * 50);
}

// A window of two: a fetch waits for the last use of its slot, not for the layer that is computed.
TEST_F(DelayedHostTier, FetchRunsAheadOfComputeStream) {
  std::vector<double> sums(kLayers);
  for (int layer = 0; layer < 3; ++layer) set_weights(layer, 1);
  use(0, sums[0]);
  use(1, sums[1]);
  compute_done();
  compute->hold();
  double again = 0;
  use(1, again);
  store->release(0, StateKind::kWeights);
  store->prefetch(2, StateKind::kWeights);
  in->synchronize();  // would never end if it waited for the compute stream
  compute->release();
  compute_done();
  EXPECT_EQ(again, times_numel(1));
}

TEST_F(DelayedHostTier, OverwritesWeightsThatStayAfterTheirLastUse) {
  make(kZeroOffload);
  set_weights(0, 3);
  double arrived = 0, before = 0, after = 0;
  use(0, arrived);
  compute_done();  // the copy has ended: the host may write its weights
  compute->hold();
  use(0, before);
  set_weights(0, 5);
  store->prefetch(0, StateKind::kWeights);
  let_others_run();
  compute->release();
  use(0, after);
  compute_done();
  EXPECT_EQ(before, times_numel(3));
  EXPECT_EQ(after, times_numel(5));
}

TEST_F(DelayedHostTier, CopiesGradientAfterItsKernels) {
  for (const LayerTiers& tiers : {kAllOnHost, kZeroOffload}) {
    make(tiers);
    compute->hold();
    make_gradient(0, 3);
    let_others_run();
    compute->release();
    EXPECT_EQ(gradient(0), times_numel(3));
  }
}

TEST_F(DelayedHostTier, ReusesMemoryOfGradientAfterItsCopy) {
  out->hold();
  make_gradient(1, 3);
  make_gradient(0, 5);  // the device waits here, and lets the first one go
  let_others_run();
  out->release();
  EXPECT_EQ(gradient(1), times_numel(3));
  EXPECT_EQ(gradient(0), times_numel(5));
}

// The plan counts its memory until then.
TEST_F(DelayedHostTier, KeepsLastGradientOfStepUntilEndOffload) {
  out->hold();
  make_gradient(0, 3);
  const float& first = *static_cast<const float*>(DelayedMemory::last());
  out->release();
  EXPECT_EQ(gradient(0), times_numel(3));
  compute_done();
  EXPECT_EQ(first, 3);
  store->end_offload();
  compute_done();
  EXPECT_TRUE(std::isnan(first));
}

// Gradients also stay on the device, where the next step overwrites them.
TEST_F(DelayedHostTier, OverwritesGradientThatStaysAfterItsCopy) {
  ShardPlacement placement{.shard = {0, layout().own_numel}, .tiers = kZeroOffload};
  store->insert(0, layout(), placement);
  out->hold();
  make_gradient(0, 3);
  {
    const Pin pin = store->acquire(0, StateKind::kGradients);
    fill(pin.flat_gradients(), 5);
  }
  let_others_run();
  out->release();
  EXPECT_EQ(gradient(0), times_numel(3));
}

// Layers share a host buffer: the copy to it waits for the update of the previous layer, the rank
// does not.
TEST_F(DelayedHostTier, ReusesGradientBufferAfterUpdateThatReadsIt) {
  make(kAllOnHost, /*gradient_buffers=*/1);
  make_gradient(1, 3);
  std::promise<void> gate;
  double read = 0;
  Executor updates(tensor_executor("update"));
  Completion updated;
  {
    const Pin pin = store->acquire_unwaited(1, kUpdated);
    updated = updates.submit(
        [&, gradient = pin.gradient_shard()] {
          gate.get_future().wait();
          read = gradient.sum().item<double>();
        },
        store->pending(pin));
  }
  store->written(1, kUpdated, updated);
  make_gradient(0, 5);
  let_others_run();
  gate.set_value();
  EXPECT_EQ(gradient(0), times_numel(5));
  EXPECT_EQ(read, times_numel(3));
}

TEST_F(DelayedHostTier, HostReadsGradientAfterItsArrival) {
  out->hold();
  make_gradient(0, 3);
  const std::jthread later([this] {
    let_others_run();
    out->release();
  });
  EXPECT_EQ(gradient(0), times_numel(3));
}

TEST_F(DelayedHostTier, RankWaitsOnlyForHost) {
  for (int layer = 0; layer < kLayers; ++layer) set_weights(layer, 1);
  std::vector<double> sums(kLayers);
  for (const auto& queue : {compute, in, out}) queue->hold();
  for (int layer = 0; layer < kLayers; ++layer) {
    store->prefetch(layer, StateKind::kWeights);
    use(layer, sums[layer]);
    store->release(layer, StateKind::kWeights);
    make_gradient(layer, 2);
  }
  for (const auto& queue : {compute, in, out}) queue->release();
  compute_done();
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(sums[layer], times_numel(1));
    EXPECT_EQ(gradient(layer), times_numel(2));
  }
}

// The store is destroyed while copies run: their memory is reused after them.
TEST_F(DelayedHostTier, FreesMemoryAfterItsCopies) {
  make(kZeroOffload);
  set_weights(0, 3);
  in->hold();
  out->hold();
  store->prefetch(0, StateKind::kWeights);
  make_gradient(1, 2);
  const auto* const weights = store->state(0).weights.bytes().const_data_ptr<float>();
  const at::Tensor gradient = store->state(1).gradient_shard.bytes();
  const std::jthread later([this] {
    let_others_run();
    in->release();
    out->release();
  });
  store.reset();
  compute_done();
  EXPECT_NE(weights[0], 3.0f);  // it was freed after the copy
  EXPECT_EQ(gradient.sum().item<double>(), times_numel(2));
}

// Runs steps with a window: prefetch, compute, offload, update on the host. Each result depends on
// all earlier ones, so an early copy or a missing wait changes the end.
std::vector<double> train(LayerStore& store, int layers, int window,
                          const std::function<void(std::function<void()>)>& give) {
  const auto numel = layout().own_numel;
  Executor updates(tensor_executor("update"));
  const auto activation = std::make_shared<double>(1.0);
  for (int layer = 0; layer < layers; ++layer) {
    const Pin pin = store.acquire(layer, kUpdated);
    pin.weight_shard().fill_(layer + 1);
  }
  for (int layer = 0; layer < layers; ++layer) store.written(layer, kUpdated, {});
  std::vector<int> here;
  const auto fetch = [&](int layer, int keep) {
    if (layer < 0 || layer >= layers || std::ranges::count(here, layer)) return;
    if (static_cast<int>(here.size()) == window) {
      const auto victim = std::ranges::find_if(here, [&](int other) { return other != keep; });
      store.release(*victim, StateKind::kWeights);
      here.erase(victim);
    }
    store.prefetch(layer, StateKind::kWeights);
    here.push_back(layer);
  };
  for (int step = 0; step < 6; ++step) {
    for (int layer = 0; layer < layers; ++layer) {
      fetch(layer, layer);
      fetch(layer + 1, layer);
      const Pin pin = store.acquire(layer, StateKind::kWeights);
      give([=, w = pin.flat_weights().const_data_ptr<float>()] {
        double sum = 0;
        for (std::int64_t i = 0; i < numel; ++i) sum += w[i];
        *activation = 0.5 * *activation + sum / static_cast<double>(numel);
      });
    }
    for (int layer = layers - 1; layer >= 0; --layer) {
      fetch(layer, layer);
      fetch(layer - 1, layer);
      {
        const Pin pin = store.acquire(layer, StateKind::kWeights | StateKind::kGradients);
        pin.open_gradients();
        give([=, w = pin.flat_weights().const_data_ptr<float>(),
              g = pin.flat_gradients().data_ptr<float>()] {
          for (std::int64_t i = 0; i < numel; ++i)
            g[i] += 0.25f * w[i] + static_cast<float>(0.01 * *activation);
        });
      }
      store.release(layer, StateKind::kGradients);
    }
    for (int layer = 0; layer < layers; ++layer) {
      Completion updated;
      {
        const Pin pin = store.acquire_unwaited(layer, kUpdated);
        updated =
            updates.submit([w = pin.weight_shard(), g = pin.gradient_shard()] { w.sub_(g, 0.1); },
                           store.pending(pin));
      }
      store.written(layer, kUpdated, updated);
      std::erase(here, layer);  // the past
    }
  }
  std::vector<double> sums;
  for (int layer = 0; layer < layers; ++layer)
    sums.push_back(
        store.acquire(layer, StateKind::kWeightShard).weight_shard().sum().item<double>());
  return sums;
}

TEST_F(DelayedHostTier, TrainsSameBitsAsSynchronousDevice) {
  std::map<int, std::vector<double>> expected;
  for (const int window : {2, 3}) {
    LayerStore store({.host = std::make_unique<HostBackend>()});
    for (int layer = 0; layer < kLayers; ++layer)
      store.insert(layer, layout(),
                   {.shard = {0, layout().own_numel},
                    .whole_weights = false,
                    .whole_gradients = false,
                    .tiers = kAllOnHost});
    expected[window] =
        train(store, kLayers, window, [](const std::function<void()>& work) { work(); });
  }
  EXPECT_EQ(expected[2], expected[3]);
  for (int round = 0; round < 8; ++round) {
    make(kAllOnHost);
    const int window = 2 + round % 2;
    EXPECT_EQ(train(*store, kLayers, window,
                    [this](std::function<void()> work) { compute->give(std::move(work)); }),
              expected[window]);
  }
}

struct DelayedSlots : testing::Test, DelayedDevice {};

TEST_F(DelayedSlots, AreFilledAfterPreviousUseOfMemory) {
  DeviceSlots slots(streams.compute);
  compute->hold();
  const DeviceSlots::Slot fresh = slots.take(8, at::kFloat);
  EXPECT_FALSE(fresh.free.ready());
  compute->release();
  fresh.free.wait();
  slots.give_back(fresh.bytes, {});
  EXPECT_TRUE(slots.take(8, at::kFloat).free.ready());
}

TEST_F(DelayedSlots, FreeMemoryAfterTheirLastUse) {
  DeviceSlots slots(streams.compute);
  at::Tensor bytes = slots.take(8, at::kFloat).bytes;
  bytes.fill_(3);
  in->hold();
  const auto* const place = bytes.const_data_ptr<float>();
  slots.give_back(std::move(bytes), streams.to_device.record());
  const DeviceSlots::Slot other = slots.take(16, at::kFloat);  // the first makes room
  let_others_run();
  EXPECT_EQ(place[0], 3.0f);
  in->release();
  compute->synchronize();
  EXPECT_NE(place[0], 3.0f);
}

TEST(DeviceSlots, KeepNoMemoryOnSynchronousDevice) {
  install_accounting_allocator();
  MemoryAccount account("device");
  const AccountScope scope(account);
  DeviceSlots slots{Stream()};
  DeviceSlots::Slot slot = slots.take(256, at::kFloat);
  EXPECT_EQ(account.current_bytes(), 1024);
  slots.give_back(std::move(slot.bytes), {});
  EXPECT_EQ(account.current_bytes(), 0);
}

}  // namespace
}  // namespace strata
