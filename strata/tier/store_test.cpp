#include "strata/tier/store.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

class CountingMedium final : public Medium {
 public:
  explicit CountingMedium(int& present) : present_(present) {}
  void prefetch(LayerBuffers&) override {}
  void fetch(LayerBuffers&) override { present_ = 1; }
  void release(LayerBuffers&) override { present_ = 0; }

 private:
  int& present_;
};

const LayerLayout& layout() {
  static const LayerLayout layout = make_layout(
      {{.name = "w", .shape = {4, 4}, .decay = true}, {.name = "b", .shape = {4}}}, {false, false});
  return layout;
}

TEST(LayerStore, LetsBackwardAccumulateInTheFlatGradient) {
  LayerStore store(device_medium());
  store.insert(0, layout(), {}, 2);
  const Lease lease = store.acquire(0);
  for (int i = 0; i < 3; ++i) (lease.weights()[0] * 2).sum().backward();
  EXPECT_EQ(lease.buffers().gradients.tensor().narrow(0, 0, 16).min().item<float>(), 6.0f);
  EXPECT_EQ(lease.buffers().gradients.tensor().narrow(0, 16, 4).abs().max().item<float>(), 0.0f);
  EXPECT_EQ(lease.buffers().slots.size(), 2u);
}

TEST(LayerStore, FetchesForALeaseAndPinsWhileItLives) {
  int present = 0;
  LayerStore store(std::make_unique<CountingMedium>(present));
  store.insert(0, layout(), {}, 0);
  {
    Lease lease = store.acquire(0);
    const Lease moved = std::move(lease);
    EXPECT_EQ(present, 1);
    EXPECT_THROW(store.release(0), InternalError);
  }
  EXPECT_EQ(present, 1);
  store.release(0);
  EXPECT_EQ(present, 0);
}

TEST(LayerStore, KeepsAShardOfWhatReplicasShare) {
  LayerStore store(device_medium());
  store.insert(0, layout(), {}, 2,
               {.shard = {16, 32}, .whole_weights = false, .whole_gradients = false});
  LayerBuffers& buffers = store.buffers(0);
  EXPECT_FALSE(buffers.weights.present());
  EXPECT_EQ(buffers.weight_shard.numel(), 16);
  EXPECT_EQ(buffers.slots[1].numel(), 16);
  store.open_gradients(0);
  EXPECT_TRUE(buffers.gradients.present());
  EXPECT_NE(buffers.gradients.tensor().data_ptr(), nullptr);
  store.insert(1, layout(), {}, 0, {.shard = {16, 32}});
  LayerBuffers& whole = store.buffers(1);
  EXPECT_EQ(whole.weight_shard.data_ptr<float>(), whole.weights.tensor().data_ptr<float>() + 16);
}

TEST(LayerStore, MakesATiedUseAViewOfTheOwner) {
  const LayerLayout borrowed = make_layout({{.name = "w", .shape = {4, 4}, .tie = "t"}}, {true});
  LayerStore store(device_medium());
  store.insert(0, layout(), {}, 0);
  at::Tensor owner;
  {
    const Lease lease = store.acquire(0);
    owner = lease.weights()[0].detach();
  }
  store.insert(1, borrowed, {owner}, 0);
  owner.fill_(3);
  const Lease user = store.acquire(1);
  EXPECT_EQ(user.weights()[0].detach().mean().item<float>(), 3.0f);
  EXPECT_NE(user.weights()[0].grad().data_ptr(), nullptr);
  EXPECT_EQ(user.buffers().weights.tensor().numel(), 0);
}

TEST(LayerStore, RefusesALayerThatIsNotThere) {
  LayerStore store(device_medium());
  EXPECT_THROW(static_cast<void>(store.acquire(3)), InternalError);
}

}  // namespace
}  // namespace strata
