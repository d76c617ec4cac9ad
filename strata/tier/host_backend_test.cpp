// Tests the order of copies and updates. The test decides when an update ends.
#include "strata/tier/host_backend.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/tensor_executor.h"
#include "strata/tier/store.h"

namespace strata {
namespace {

constexpr LayerTiers kAllOnHost{Tier::kHost, Tier::kHost, Tier::kHost};
constexpr LayerTiers kZeroOffload{Tier::kDevice, Tier::kHost, Tier::kHost};
constexpr StateKinds kUpdated = StateKind::kWeightShard | StateKind::kGradientShard;

const LayerLayout& layout() {
  static const LayerLayout layout =
      make_layout({{.name = "w", .shape = {32, 32}, .decay = true}, {.name = "b", .shape = {32}}},
                  {false, false});
  return layout;
}

ShardPlacement placed(const LayerTiers& tiers) {
  return {.shard = {0, layout().own_numel},
          .whole_weights = !tiers.fetches_weights(),
          .whole_gradients = !tiers.offloads_gradients(),
          .tiers = tiers,
          .optimizer_slots = 2};
}

// A store of two layers whose updates run on an executor of the test.
struct HostTier : testing::Test {
  HostTier() { install_accounting_allocator(); }

  LayerStore store_of(const LayerTiers& tiers, LinkOptions link = {}) {
    const AccountScope scope(device);
    LayerStore store({.host = std::make_unique<HostBackend>(link)}, Residency::kUntilReleased,
                     Device(), &host);
    for (const int layer : {0, 1}) store.insert(layer, layout(), placed(tiers));
    return store;
  }

  // An update of a layer that sets its weights to `value` when `gate` opens.
  void update(LayerStore& store, int layer, double value, std::shared_future<void> gate) {
    std::vector<Completion> pending;
    at::Tensor weights;
    {
      const Pin pin = store.acquire_unwaited(layer, kUpdated);
      pending = store.pending(pin);
      weights = pin.weight_shard();
    }
    store.written(layer, kUpdated,
                  updates.submit(
                      [=] {
                        gate.wait();
                        weights.fill_(value);
                      },
                      std::move(pending)));
  }

  // A weight that the layer computes with, on the device.
  static float weight(LayerStore& store, int layer) {
    const Pin pin = store.acquire(layer, StateKind::kWeights);
    return pin.flat_weights()[0].item<float>();
  }

  void make_gradient(LayerStore& store, int layer, double value) {
    const AccountScope scope(device);
    const Pin pin = store.acquire(layer, StateKind::kGradients);
    pin.open_gradients();
    pin.flat_gradients().fill_(value);
  }

  MemoryAccount device{"device"};
  MemoryAccount host{"host"};
  std::promise<void> open;
  std::shared_future<void> gate{open.get_future()};
  Executor updates{tensor_executor("update")};
};

TEST_F(HostTier, ChargesHostForBytesThatLiveThere) {
  const std::int64_t bytes = 4 * layout().own_numel;
  {
    const LayerStore store = store_of(kAllOnHost);
    EXPECT_EQ(device.current_bytes(), 0);
    EXPECT_EQ(host.current_bytes(), 2 * 4 * bytes);  // weights, gradients, two slots
  }
  const LayerStore store = store_of(kZeroOffload);
  EXPECT_EQ(device.current_bytes(), 2 * bytes);
  EXPECT_EQ(host.current_bytes(), 2 * 4 * bytes);
}

TEST_F(HostTier, FetchWaitsOnlyForUpdateOfItsLayer) {
  for (const LayerTiers& tiers : {kAllOnHost, kZeroOffload}) {
    LayerStore store = store_of(tiers);
    std::promise<void> opens;
    const std::shared_future<void> closed(opens.get_future());
    update(store, 0, 3, gate);
    update(store, 1, 5, closed);
    store.prefetch(0, StateKind::kWeights);
    store.prefetch(1, StateKind::kWeights);
    if (tiers == kAllOnHost) open.set_value();
    EXPECT_EQ(weight(store, 0), 3.0f);  // the other is still closed
    opens.set_value();
    EXPECT_EQ(weight(store, 1), 5.0f);
  }
}

TEST_F(HostTier, FetchesWeightsAgainAfterUpdate) {
  open.set_value();
  for (const LayerTiers& tiers : {kAllOnHost, kZeroOffload}) {
    LayerStore store = store_of(tiers);
    EXPECT_EQ(weight(store, 0), 0.0f);
    update(store, 0, 7, gate);
    EXPECT_EQ(weight(store, 0), 7.0f);
    EXPECT_EQ(store.acquire(0, StateKind::kWeightShard).weight_shard()[0].item<float>(), 7.0f);
  }
}

TEST_F(HostTier, CopiesGradientAfterUpdateThatReadsPreviousOne) {
  LayerStore store = store_of(kAllOnHost);
  make_gradient(store, 0, 1);
  store.release(0, StateKind::kGradients);
  at::Tensor seen;
  {
    const Pin pin = store.acquire(0, StateKind::kGradientShard);
    EXPECT_EQ(pin.gradient_shard()[0].item<float>(), 1.0f);
    seen = pin.gradient_shard();
  }
  std::atomic<float> at_end{0};
  store.written(0, kUpdated, updates.submit([&, gate = gate] {
    gate.wait();
    at_end = seen[0].item<float>();
  }));
  make_gradient(store, 0, 2);
  store.release(0, StateKind::kGradients);
  open.set_value();
  EXPECT_EQ(store.acquire(0, StateKind::kGradientShard).gradient_shard()[0].item<float>(), 2.0f);
  EXPECT_EQ(at_end, 1.0f);
}

// Two layers share one buffer: the second gradient is copied to it after the first was read.
TEST_F(HostTier, FillsSharedBufferAfterUpdateOfPreviousBorrower) {
  auto backend = std::make_unique<HostBackend>();
  backend->make_gradient_buffers(1, layout().own_numel);
  LayerStore store({.host = std::move(backend)}, Residency::kUntilReleased, Device(), &host);
  ShardPlacement placement = placed(kAllOnHost);
  placement.borrows_gradients = true;
  for (const int layer : {0, 1}) store.insert(layer, layout(), placement);
  make_gradient(store, 0, 1);
  store.release(0, StateKind::kGradients);
  const at::Tensor seen = store.acquire(0, StateKind::kGradientShard).gradient_shard();
  EXPECT_EQ(seen[0].item<float>(), 1.0f);
  std::atomic<float> at_end{0};
  store.written(0, kUpdated, updates.submit([&, gate = gate] {
    gate.wait();
    at_end = seen[0].item<float>();
  }));
  make_gradient(store, 1, 2);
  store.release(1, StateKind::kGradients);
  EXPECT_EQ(seen[0].item<float>(), 1.0f);
  open.set_value();
  const Pin pin = store.acquire(1, StateKind::kGradientShard);
  EXPECT_EQ(pin.gradient_shard()[0].item<float>(), 2.0f);
  EXPECT_EQ(pin.gradient_shard().data_ptr(), seen.data_ptr());
  EXPECT_EQ(at_end, 1.0f);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kGradientShard).gradient_shard()),
               InternalError);  // it has been consumed
}

TEST_F(HostTier, KeepsOneGradientInTransitWhileNextIsComputed) {
  LayerStore store = store_of(kAllOnHost, {.latency_seconds = 0.05});
  const std::int64_t bytes = 4 * layout().total_numel;
  for (int round = 0; round < 2; ++round) {
    for (const int layer : {1, 0}) {
      make_gradient(store, layer, 1);
      store.release(layer, StateKind::kGradients);
      EXPECT_LE(device.current_bytes(), bytes);  // the one before has arrived
    }
  }
  EXPECT_LE(device.peak_bytes(), 2 * bytes);
}

TEST_F(HostTier, FailedUpdateFailsReadersOfItsResults) {
  LayerStore store = store_of(kAllOnHost);
  store.written(0, kUpdated, updates.submit([] { throw std::runtime_error("no update"); }));
  store.prefetch(0, StateKind::kWeights);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kWeights)), std::runtime_error);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kWeightShard)), std::runtime_error);
  EXPECT_EQ(weight(store, 1), 0.0f);
}

TEST_F(HostTier, RecordsCopiesAndWaits) {
  TraceLog waits;
  TrackTrace tracks;
  auto backend =
      std::make_unique<HostBackend>(LinkOptions{.latency_seconds = 0.3}, nullptr, &tracks);
  HostBackend& counted = *backend;
  LayerStore store({.host = std::move(backend)}, Residency::kUntilReleased, Device(), &host);
  store.insert(0, layout(), placed(kAllOnHost));
  store.trace_waits(&waits);
  EXPECT_EQ(weight(store, 0), 0.0f);
  make_gradient(store, 0, 1);
  store.release(0, StateKind::kGradients);
  static_cast<void>(store.acquire(0, StateKind::kGradientShard));
  std::vector<TraceEvent> waited = waits.events();
  std::erase_if(waited, [](const TraceEvent& wait) {  // a short eviction
    return wait.end_seconds - wait.begin_seconds < 0.15;
  });
  ASSERT_EQ(waited.size(), 2u);
  EXPECT_EQ(waited[0].op, Op::kPrefetchWeights);
  EXPECT_EQ(waited[1].op, Op::kOffloadGradients);
  for (const TraceEvent& wait : waited) EXPECT_EQ(wait.first_layer, 0);
  const std::vector<TrackEvent> copies = tracks.take();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].track, TrackKind::kToDevice);
  EXPECT_EQ(copies[1].track, TrackKind::kToHost);
  EXPECT_LE(copies[1].end_seconds, waited[1].end_seconds);
  EXPECT_EQ(counted.link().bytes_to_device(), 4 * layout().own_numel);
  EXPECT_EQ(counted.link().bytes_to_host(), 4 * layout().own_numel);
  EXPECT_GE(store.waited_seconds(StateKind::kWeights), 0.15);
}

}  // namespace
}  // namespace strata
