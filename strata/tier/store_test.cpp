#include "strata/tier/store.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/tier/example_backends_test.h"

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

TEST(LayerStore, BackwardAccumulatesInFlatGradient) {
  LayerStore store;
  store.insert(0, layout(), whole());
  const Pin pin = store.acquire(0, StateKinds::all());
  for (int i = 0; i < 3; ++i) (pin.weights()[0] * 2).sum().backward();
  EXPECT_EQ(pin.flat_gradients().narrow(0, 0, 16).min().item<float>(), 6.0f);
  EXPECT_EQ(pin.flat_gradients().narrow(0, 16, 4).abs().max().item<float>(), 0.0f);
  EXPECT_EQ(pin.weight_gradient(0).min().item<float>(), 6.0f);
  EXPECT_EQ(pin.slots().size(), 2u);
  pin.zero_gradients();
  EXPECT_EQ(pin.gradient_shard().abs().max().item<float>(), 0.0f);
}

TEST(LayerStore, KeepsShardOfRank) {
  LayerStore store;
  store.insert(
      0, layout(),
      {.shard = {16, 32}, .whole_weights = false, .whole_gradients = false, .optimizer_slots = 2});
  {
    const Pin pin = store.acquire(0, kUpdate);
    EXPECT_EQ(pin.weight_shard().numel(), 16);
    EXPECT_EQ(pin.gradient_shard().numel(), 16);
    EXPECT_EQ(pin.slots()[1].numel(), 16);
    EXPECT_TRUE(pin.master().weights.is_same(pin.weight_shard()));
    EXPECT_THROW(static_cast<void>(pin.flat_gradients()), InternalError);  // not open
    pin.open_gradients();
    EXPECT_EQ(pin.flat_gradients().numel(), layout().total_numel);
    EXPECT_EQ(pin.take_gradients().numel(), layout().total_numel);
  }
  store.insert(1, layout(), {.shard = {16, 32}});
  const Pin pin = store.acquire(1, StateKind::kWeights);
  EXPECT_EQ(pin.weight_shard().data_ptr<float>(), pin.flat_weights().data_ptr<float>() + 16);
}

TEST(LayerStore, KeepsFp32WeightsForUpdateOf16BitOnes) {
  LayerStore store;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    ShardPlacement placement = whole();
    placement.dtype = dtype;
    store.insert(0, layout(), placement);
    const Pin pin = store.acquire(0, StateKinds::all());
    EXPECT_EQ(pin.weight_shard().scalar_type(), dtype);
    EXPECT_EQ(pin.flat_gradients().scalar_type(), at::kFloat);
    const MasterWeights master = pin.master();
    const at::Tensor values = at::randn({master.numel()});
    master.assign(values);
    EXPECT_TRUE(at::equal(pin.master().whole(), values));  // every bit
    if (dtype == at::kHalf) {
      EXPECT_EQ(master.weights.scalar_type(), at::kFloat);
      EXPECT_EQ(pin.rounded().data_ptr(), pin.weight_shard().data_ptr());
    } else {  // the weights are the upper 16 bits, and the remainder has the lower ones
      EXPECT_EQ(master.remainder.scalar_type(), at::kShort);
      EXPECT_FALSE(pin.rounded().defined());
      EXPECT_TRUE(at::allclose(pin.flat_weights().to(at::kFloat), values, 1.0 / 128, 0));
    }
  }
}

TEST(LayerStore, TiedWeightIsViewOfOwner) {
  const LayerLayout owner = make_layout({{.name = "w", .shape = {4, 4}, .tie = "t"}}, {false});
  const LayerLayout borrowed = make_layout({{.name = "w", .shape = {4, 4}, .tie = "t"}}, {true});
  AwayBackend::Counts counts;
  LayerStore store({.device = std::make_unique<AwayBackend>(&counts)}, Residency::kWhilePinned);
  store.insert(0, owner, {.shard = {0, owner.own_numel}});
  store.insert(1, borrowed, {});
  store.acquire(0, StateKind::kWeights).weights()[0].detach().fill_(3);
  {
    const Pin user = store.acquire(1, StateKind::kWeights | StateKind::kGradients);
    EXPECT_EQ(user.weights()[0].detach().mean().item<float>(),
              3.0f);  // the owner's were fetched, too
    EXPECT_NE(user.weight_gradient(0).data_ptr(), nullptr);
    EXPECT_EQ(user.flat_weights().numel(), 0);
    EXPECT_THROW(store.release(0, StateKind::kWeights), InternalError);
  }
  LayerStore alone;
  alone.insert(1, borrowed, {});
  EXPECT_EQ(alone.acquire(1, StateKind::kWeights).weights()[0].numel(), 16);
}

TEST(LayerStore, HoldsOnlyWeightsForInference) {
  LayerStore store;
  store.insert(0, layout(), {.shard = {0, layout().own_numel}, .trains = false});
  const Pin pin = store.acquire(0, StateKind::kWeights);
  EXPECT_FALSE(pin.weights()[0].requires_grad());
  EXPECT_FALSE(pin.weights()[0].grad().defined());
  EXPECT_EQ(pin.master().numel(), layout().own_numel);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kGradients)), InternalError);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kOptimizer)), InternalError);
}

TEST(Pin, RefusesKindsThatItDoesNotName) {
  LayerStore store;
  store.insert(0, layout(), whole());
  const Pin pin = store.acquire(0, StateKind::kGradients);
  EXPECT_THROW(static_cast<void>(pin.weights()), InternalError);
  EXPECT_THROW(static_cast<void>(pin.master()), InternalError);
  EXPECT_THROW(static_cast<void>(pin.slots()), InternalError);
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kWeights).gradient_shard()),
               InternalError);
}

TEST(Pin, KeepsItsKindsFromLeaving) {
  AwayBackend::Counts counts;
  LayerStore store({.device = std::make_unique<AwayBackend>(&counts)});
  store.insert(0, layout(), whole());
  {
    Pin pin = store.acquire(0, StateKind::kWeights);
    const Pin moved = std::move(pin);
    EXPECT_THROW(store.release(0, StateKind::kWeights), InternalError);
    store.release(0, StateKind::kOptimizer);  // another kind
  }
  EXPECT_EQ(counts.evictions, 0);  // the optimizer states were never fetched
  store.release(0, StateKind::kWeights);
  store.release(0, StateKind::kWeights);
  EXPECT_EQ(counts.evictions, 1);
}

TEST(LayerStore, StartsTransferOnceAndWaitsForItAtPin) {
  AwayBackend::Counts counts;
  LayerStore store({.device = std::make_unique<AwayBackend>(&counts)});
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

TEST(LayerStore, EvictsStateWithItsLastPin) {
  AwayBackend::Counts counts;
  LayerStore store({.device = std::make_unique<AwayBackend>(&counts)}, Residency::kWhilePinned);
  store.insert(0, layout(), whole());
  at::Tensor seen;
  {
    const Pin pin = store.acquire(0, kUpdate);
    pin.master().weights.fill_(2);
    pin.slots()[1].fill_(7);
    {
      const Pin second = store.acquire(0, StateKind::kWeights);
    }
    EXPECT_EQ(counts.evictions, 0);
    seen = pin.slots()[1];
  }
  EXPECT_EQ(counts.evictions, 3);
  EXPECT_TRUE(seen.isnan().all().item<bool>());  // the evicted bytes
  const Pin pin = store.acquire(0, kUpdate);
  EXPECT_EQ(pin.slots()[1].min().item<float>(), 7);
  EXPECT_EQ(pin.master().whole().min().item<float>(), 2);
}

// A fetch, its end or an eviction fails. The store stays usable, and the kind can be acquired
// again.
TEST(LayerStore, SurvivesFailingBackend) {
  for (const auto call :
       {FaultyBackend::Call::kFetch, FaultyBackend::Call::kWait, FaultyBackend::Call::kEvict}) {
    LayerStore store(
        {.device = std::make_unique<FaultyBackend>(std::make_unique<AwayBackend>(), call, 0)});
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
    // A failed eviction keeps the bytes and their changes.
    const int more = call == FaultyBackend::Call::kEvict ? 1 : 0;
    EXPECT_EQ(store.acquire(0, StateKind::kOptimizer).slots()[0].min().item<float>(), 3 + more);
  }
}

TEST(LayerStore, PinThrowsErrorOfFailedEviction) {
  LayerStore store({.device = std::make_unique<FaultyBackend>(std::make_unique<AwayBackend>(),
                                                              FaultyBackend::Call::kEvict, 0)},
                   Residency::kWhilePinned);
  store.insert(0, layout(), whole());
  {
    const Pin pin = store.acquire(0, StateKind::kWeights);
  }
  EXPECT_THROW(static_cast<void>(store.acquire(0, StateKind::kWeights)), SystemError);
  EXPECT_EQ(store.acquire(0, StateKind::kWeights).flat_weights().numel(), layout().own_numel);
}

TEST(LayerStore, RefusesUnknownLayer) {
  LayerStore store;
  EXPECT_THROW(static_cast<void>(store.acquire(3, StateKind::kWeights)), InternalError);
}

}  // namespace
}  // namespace strata
