// Tests ZeRO with shards in host memory and an asynchronous device: copies wait in stream order,
// and no rank waits for a copy.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "strata/comm/delayed_ranks_test.h"
#include "strata/device/tensor_executor.h"
#include "strata/tier/delayed_device_test.h"
#include "strata/tier/gradient_reduction.h"
#include "strata/tier/peer_backend.h"
#include "strata/tier/store.h"

namespace strata {
namespace {

constexpr LayerTiers kAllOnHost{Tier::kHost, Tier::kHost, Tier::kHost};
constexpr StateKinds kUpdated = StateKind::kWeightShard | StateKind::kGradientShard;

// Shards of 3072 and 2048 elements.
const LayerLayout& layout() {
  static const LayerLayout layout =
      make_layout({{.name = "w", .shape = {80, 64}, .decay = true}}, {false});
  return layout;
}

// A rank's shards of one layer; all ranks share a device.
struct HostShards {
  HostShards(Group& world, int shards)
      : group(world.rank_device()),
        in(std::make_shared<DelayedQueue>(7)),
        out(std::make_shared<DelayedQueue>(8)),
        groups(make_mesh_groups(world, {{Axis::kData, world.size()}}, shards)),
        cuts(cut_layer(layout().own_numel, {.replicas = world.size(), .shards = shards})),
        store(std::make_unique<LayerStore>(backends(), Residency::kUntilReleased, group.stream)) {
    store->insert(0, layout(),
                  {.shard = cuts.shards[groups.shard.rank()],
                   .whole_weights = false,
                   .whole_gradients = false,
                   .gathered_weights = true,
                   .tiers = kAllOnHost});
  }
  ~HostShards() { group.stream.synchronize(); }

  Backends backends() {
    Backends backends{.host = std::make_unique<HostBackend>(
                          LinkOptions{}, nullptr, nullptr,
                          CopyStreams(group.stream, Stream({}, in), Stream({}, out)))};
    backends.peers = std::make_unique<PeerBackend>(groups.shard, backends.host.get());
    return backends;
  }

  const FlatRange& shard() const { return cuts.shards[groups.shard.rank()]; }
  void fill(const at::Tensor& x, float value) const {
    delayed(group.stream).give([begin = x.data_ptr<float>(), numel = x.numel(), value] {
      std::fill_n(begin, numel, value);
    });
  }
  // Like a backward and its reduction.
  void reduce(float gradient, bool first, bool last) {
    {
      const Pin pin = store->acquire(0, StateKind::kGradients);
      pin.open_gradients();
      fill(pin.flat_gradients(), gradient);
    }
    auto reduction =
        GradientReduction::start(groups, store->acquire(0, StateKind::kGradients), cuts, false);
    reduction.sum(store->acquire_to_copy(0, StateKind::kGradientShard), first, last);
    reduction.finish();
  }
  // The host reads them after their arrival.
  void expect_gradients(float value) {
    const at::Tensor gradients =
        store->acquire(0, StateKind::kGradientShard).gradient_shard().clone();
    for (const float got :
         std::span(gradients.const_data_ptr<float>(), static_cast<std::size_t>(gradients.numel())))
      ASSERT_EQ(got, value);
  }

  RankDevice& group;
  std::shared_ptr<DelayedQueue> in, out;
  MeshGroups groups;
  LayerCuts cuts;
  std::unique_ptr<LayerStore> store;
};

// Work that the rank must not wait for. It continues after expect_held(), or after 20 s.
class HeldWork {
 public:
  explicit HeldWork(std::function<void()> go_on = [] {}) : resume_(std::move(go_on)) {}
  ~HeldWork() { end(); }
  HeldWork(const HeldWork&) = delete;
  HeldWork& operator=(const HeldWork&) = delete;

  bool resumes() const { return resumes_; }
  void expect_held() {
    EXPECT_FALSE(resumes_) << "the rank has waited";
    end();
  }

 private:
  void end() {
    if (!resumes_.exchange(true)) resume_();
  }

  std::function<void()> resume_;
  std::atomic<bool> resumes_ = false;
  std::jthread clock_{[this](const std::stop_token& stop) {
    for (int i = 0; i < 20000 && !stop.stop_requested(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end();
  }};
};

void run_shards(int ranks, int shards, const std::function<void(HostShards&)>& function) {
  DelayedDevices devices(3, 1);
  const DelayedMemory memory(delayed(devices.of(0)->stream));
  run_delayed(ranks, devices, [&](Group& world) {
    HostShards state(world, shards);
    function(state);
    world.barrier();
  });
}

TEST(HostShards, AreGatheredAfterTheirUpdateWhileRankDoesNotWait) {
  run_shards(2, 2, [](HostShards& rank) {
    for (int step = 0; step < 3; ++step) {
      HeldWork update;
      Executor updates(tensor_executor("update"));
      Completion updated;
      {
        const Pin pin = rank.store->acquire(0, StateKind::kWeightShard);
        updated = updates.submit([&update, shard = pin.weight_shard(), step] {
          while (!update.resumes()) std::this_thread::yield();
          shard.fill_(step + 1);
        });
      }
      rank.store->written(0, StateKind::kWeightShard, updated);
      rank.store->prefetch(0, StateKind::kWeights);
      update.expect_held();
      double sum = 0;
      {
        const Pin pin = rank.store->acquire(0, StateKind::kWeights);
        delayed(rank.group.stream)
            .give([weights = pin.flat_weights().const_data_ptr<float>(), &sum] {
              for (int i = 0; i < layout().own_numel; ++i) sum += weights[i];
            });
      }
      rank.store->release(0, StateKind::kWeights);
      rank.group.stream.synchronize();
      EXPECT_EQ(sum, static_cast<double>((step + 1) * layout().own_numel));
      rank.groups.world.barrier();
    }
  });
}

// The memory is reused after the copy to it.
TEST(HostShards, AreFreedAfterTheirCopyWithoutGather) {
  run_shards(1, 1, [](HostShards& rank) {
    rank.store->acquire(0, StateKind::kWeightShard).weight_shard().fill_(1);
    rank.in->hold();
    rank.store->prefetch(0, StateKind::kWeights);
    const auto* copy = static_cast<const float*>(DelayedMemory::last());
    const std::jthread later([&] {
      DelayedDevice::let_others_run();
      rank.in->release();
    });
    rank.store.reset();
    rank.group.stream.synchronize();
    EXPECT_TRUE(std::isnan(*copy));
  });
}

// Two replicas have one shard each or the same shard, or four have two shards; with several
// micro-batches.
TEST(HostShards, ReceiveGradientSumsOfDevice) {
  for (const auto& [ranks, shards] : {std::pair(2, 2), std::pair(4, 2), std::pair(2, 1)}) {
    const auto all = static_cast<float>(ranks * (ranks + 1) / 2);
    run_shards(ranks, shards, [&](HostShards& rank) {
      const auto own = static_cast<float>(rank.groups.world.rank() + 1);
      for (int step = 0; step < 3; ++step) {
        rank.reduce(own, true, true);
        rank.expect_gradients(all);
        rank.reduce(10 * own, true, false);
        rank.reduce(100 * own, false, false);
        rank.reduce(own, false, true);
        rank.expect_gradients(111 * all);
      }
    });
  }
}

TEST(HostShards, ReceiveGradientsWhileRankDoesNotWait) {
  run_shards(2, 2, [](HostShards& rank) {
    rank.reduce(1, true, true);
    rank.expect_gradients(2);
    rank.out->hold();
    HeldWork copies([&] { rank.out->release(); });
    rank.reduce(3, true, true);
    copies.expect_held();
    rank.groups.world.barrier();
    rank.expect_gradients(6);
  });
}

// The update of the previous step may still read the shard: the copy waits for it.
TEST(HostShards, ReceiveGradientsAfterUpdateThatReadsPreviousOnes) {
  run_shards(2, 2, [](HostShards& rank) {
    rank.reduce(1, true, true);
    HeldWork update;
    float read = 0;
    Executor updates(tensor_executor("update"));
    Completion updated;
    {
      const Pin pin = rank.store->acquire_unwaited(0, kUpdated);
      updated = updates.submit(
          [&, gradients = pin.gradient_shard()] {
            while (!update.resumes()) std::this_thread::yield();
            read = gradients[0].item<float>();
          },
          rank.store->pending(pin));
    }
    rank.store->written(0, kUpdated, updated);
    rank.reduce(5, true, true);
    DelayedDevice::let_others_run();
    update.expect_held();
    rank.expect_gradients(10);
    EXPECT_EQ(read, 2);
  });
}

}  // namespace
}  // namespace strata
