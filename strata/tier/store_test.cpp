#include "strata/tier/store.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/tier/example_media_test.h"

namespace strata {
namespace {

const LayerLayout& layout() {
  static const LayerLayout layout = make_layout(
      {{.name = "w", .shape = {4, 4}, .decay = true}, {.name = "b", .shape = {4}}}, {false, false});
  return layout;
}

ShardPlacement whole() { return {.shard = {0, layout().own_numel}, .optimizer_slots = 2}; }

constexpr StateKinds kUpdate =
    StateKind::kGradients | StateKind::kOptimizer | StateKind::kWeightShard;

TEST(LayerStore, LetsBackwardAccumulateInTheFlatGradient) {
  LayerStore store(device_medium());
  store.insert(0, layout(), whole());
  const Lease lease = store.acquire(0, StateKinds::all());
  for (int i = 0; i < 3; ++i) (lease.weights()[0] * 2).sum().backward();
  EXPECT_EQ(lease.flat_gradients().narrow(0, 0, 16).min().item<float>(), 6.0f);
  EXPECT_EQ(lease.flat_gradients().narrow(0, 16, 4).abs().max().item<float>(), 0.0f);
  EXPECT_EQ(lease.weight_gradient(0).min().item<float>(), 6.0f);
  EXPECT_EQ(lease.slots().size(), 2u);
  lease.zero_gradients();
  EXPECT_EQ(lease.gradient_shard().abs().max().item<float>(), 0.0f);
}

TEST(LayerStore, KeepsAShardOfWhatReplicasShare) {
  LayerStore store(device_medium());
  store.insert(
      0, layout(),
      {.shard = {16, 32}, .whole_weights = false, .whole_gradients = false, .optimizer_slots = 2});
  {
    const Lease lease = store.acquire(0, kUpdate);
    EXPECT_EQ(lease.weight_shard().numel(), 16);
    EXPECT_EQ(lease.gradient_shard().numel(), 16);
    EXPECT_EQ(lease.slots()[1].numel(), 16);
    EXPECT_TRUE(lease.master().weights.is_same(lease.weight_shard()));
    EXPECT_THROW(static_cast<void>(lease.flat_gradients()), InternalError);  // not open
    lease.open_gradients();
    EXPECT_EQ(lease.flat_gradients().numel(), layout().total_numel);
    EXPECT_EQ(lease.take_gradients().numel(), layout().total_numel);
  }
  store.insert(1, layout(), {.shard = {16, 32}});
  const Lease lease = store.acquire(1, StateKind::kWeights);
  EXPECT_EQ(lease.weight_shard().data_ptr<float>(), lease.flat_weights().data_ptr<float>() + 16);
}

TEST(LayerStore, KeepsFp32WeightsForTheUpdateOf16BitOnes) {
  LayerStore store(device_medium());
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    ShardPlacement placement = whole();
    placement.dtype = dtype;
    store.insert(0, layout(), placement);
    const Lease lease = store.acquire(0, StateKinds::all());
    EXPECT_EQ(lease.weight_shard().scalar_type(), dtype);
    EXPECT_EQ(lease.flat_gradients().scalar_type(), at::kFloat);
    const MasterWeights master = lease.master();
    const at::Tensor values = at::randn({master.numel()});
    master.assign(values);
    EXPECT_TRUE(at::equal(lease.master().whole(), values));  // every bit
    if (dtype == at::kHalf) {
      EXPECT_EQ(master.weights.scalar_type(), at::kFloat);
      EXPECT_EQ(lease.rounded().data_ptr(), lease.weight_shard().data_ptr());
    } else {  // the weights are a half of them, and the 16 bits that they lack the other
      EXPECT_EQ(master.remainder.scalar_type(), at::kShort);
      EXPECT_FALSE(lease.rounded().defined());
      EXPECT_TRUE(at::allclose(lease.flat_weights().to(at::kFloat), values, 1.0 / 128, 0));
    }
  }
}

TEST(LayerStore, MakesATiedUseAViewOfTheOwner) {
  const LayerLayout owner = make_layout({{.name = "w", .shape = {4, 4}, .tie = "t"}}, {false});
  const LayerLayout borrowed = make_layout({{.name = "w", .shape = {4, 4}, .tie = "t"}}, {true});
  AwayMedium::Counts counts;
  LayerStore store(std::make_unique<AwayMedium>(&counts), Residency::kWhileLeased);
  store.insert(0, owner, {.shard = {0, owner.own_numel}});
  store.insert(1, borrowed, {});
  store.acquire(0, StateKind::kWeights).weights()[0].detach().fill_(3);
  {
    const Lease user = store.acquire(1, StateKind::kWeights | StateKind::kGradients);
    EXPECT_EQ(user.weights()[0].detach().mean().item<float>(), 3.0f);  // the owner's came, too
    EXPECT_NE(user.weight_gradient(0).data_ptr(), nullptr);
    EXPECT_EQ(user.flat_weights().numel(), 0);
    EXPECT_THROW(store.release(0, StateKind::kWeights), InternalError);
  }
  LayerStore alone(device_medium());
  alone.insert(1, borrowed, {});
  EXPECT_EQ(alone.acquire(1, StateKind::kWeights).weights()[0].numel(), 16);
}

TEST(LayerStore, HoldsWeightsAloneForInference) {
  LayerStore store(device_medium());
  store.insert(0, layout(), {.shard = {0, layout().own_numel}, .trains = false});
  const Lease lease = store.acquire(0, StateKind::kWeights);
  EXPECT_FALSE(lease.weights()[0].requires_grad());
  EXPECT_FALSE(lease.weights()[0].grad().defined());
  EXPECT_EQ(lease.master().numel(), layout().own_numel);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kGradients)), InternalError);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kOptimizer)), InternalError);
}

TEST(Lease, IsForTheKindsThatItNames) {
  LayerStore store(device_medium());
  store.insert(0, layout(), whole());
  const Lease lease = store.acquire(0, StateKind::kGradients);
  EXPECT_THROW(static_cast<void>(lease.weights()), InternalError);
  EXPECT_THROW(static_cast<void>(lease.master()), InternalError);
  EXPECT_THROW(static_cast<void>(lease.slots()), InternalError);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kWeights).gradient_shard()),
               InternalError);
}

TEST(Lease, PinsItsKindsWhileItLives) {
  AwayMedium::Counts counts;
  LayerStore store(std::make_unique<AwayMedium>(&counts));
  store.insert(0, layout(), whole());
  {
    Lease lease = store.acquire(0, StateKind::kWeights);
    const Lease moved = std::move(lease);
    EXPECT_THROW(store.release(0, StateKind::kWeights), InternalError);
    store.release(0, StateKind::kOptimizer);  // another kind
  }
  EXPECT_EQ(counts.evictions, 0);  // nothing was here to leave: nobody had asked for it
  store.release(0, StateKind::kWeights);
  store.release(0, StateKind::kWeights);
  EXPECT_EQ(counts.evictions, 1);
}

TEST(LayerStore, StartsATransferOnceAndWaitsForItAtTheLease) {
  AwayMedium::Counts counts;
  LayerStore store(std::make_unique<AwayMedium>(&counts));
  store.insert(0, layout(), whole());
  store.acquire(0, StateKind::kWeights).flat_weights().fill_(5);
  store.release(0, StateKind::kWeights);
  counts = {};
  store.prefetch(0, StateKind::kWeights);
  store.prefetch(0, StateKind::kWeights);
  EXPECT_EQ(counts.fetches, 1);
  EXPECT_EQ(counts.waits, 0);
  EXPECT_EQ(store.acquire(0, StateKind::kWeights).flat_weights().min().item<float>(), 5);
  EXPECT_EQ(counts.waits, 1);
  EXPECT_EQ(counts.fetches, 1);
}

TEST(LayerStore, LetsStateGoWithItsLastLease) {
  AwayMedium::Counts counts;
  LayerStore store(std::make_unique<AwayMedium>(&counts), Residency::kWhileLeased);
  store.insert(0, layout(), whole());
  at::Tensor seen;
  {
    const Lease lease = store.acquire(0, kUpdate);
    lease.master().weights.fill_(2);
    lease.slots()[1].fill_(7);
    {
      const Lease second = store.acquire(0, StateKind::kWeights);
    }
    EXPECT_EQ(counts.evictions, 0);
    seen = lease.slots()[1];
  }
  EXPECT_EQ(counts.evictions, 3);
  EXPECT_TRUE(seen.isnan().all().item<bool>());  // it was the bytes' old place
  const Lease lease = store.acquire(0, kUpdate);
  EXPECT_EQ(lease.slots()[1].min().item<float>(), 7);
  EXPECT_EQ(lease.master().whole().min().item<float>(), 2);
}

// A fetch, its end or an eviction fails; the store stays whole and what was asked for can be asked
// for again.
TEST(LayerStore, SurvivesAMediumThatFails) {
  for (const auto call :
       {FaultyMedium::Call::kFetch, FaultyMedium::Call::kWait, FaultyMedium::Call::kEvict}) {
    LayerStore store(std::make_unique<FaultyMedium>(std::make_unique<AwayMedium>(), call, 0));
    store.insert(0, layout(), whole());
    const auto use = [&] {
      store.acquire(0, StateKind::kGradients | StateKind::kOptimizer).slots()[0].add_(1);
      store.release(0, StateKind::kGradients | StateKind::kOptimizer);
    };
    int failures = 0, done = 0;
    while (done < 3 && failures < 5) {
      try {
        use();
        ++done;
      } catch (const SystemError& error) {
        ++failures;
        EXPECT_NE(error.text().where.find("layer 0"), std::string::npos);
      }
    }
    EXPECT_EQ(failures, 1);
    // A failed eviction keeps the bytes, and what was done to them.
    const int more = call == FaultyMedium::Call::kEvict ? 1 : 0;
    EXPECT_EQ(store.acquire(0, StateKind::kOptimizer).slots()[0].min().item<float>(), 3 + more);
  }
}

TEST(LayerStore, TellsOfAnEvictionThatFailedWithTheLease) {
  LayerStore store(
      std::make_unique<FaultyMedium>(std::make_unique<AwayMedium>(), FaultyMedium::Call::kEvict, 0),
      Residency::kWhileLeased);
  store.insert(0, layout(), whole());
  {
    const Lease lease = store.acquire(0, StateKind::kWeights);
  }
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kWeights)), SystemError);
  EXPECT_EQ(store.acquire(0, StateKind::kWeights).flat_weights().numel(), layout().own_numel);
}

TEST(LayerStore, RefusesALayerThatIsNotThere) {
  LayerStore store(device_medium());
  EXPECT_THROW(static_cast<void>(store.acquire(3, StateKind::kWeights)), InternalError);
}

}  // namespace
}  // namespace strata
