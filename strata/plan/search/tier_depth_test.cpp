#include "strata/plan/search/tier_depth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "strata/base/errors.h"
#include "strata/plan/example_models_test.h"
#include "strata/plan/search/proposal.h"

namespace strata {
namespace {

// Blocks between an embedding and a head tied to it. A block has 16 bytes per parameter and saves
// as many bytes as one weight takes.
PlanRequest request_of(int blocks) {
  PlanRequest request;
  request.dataflow = chain(blocks + 2);
  request.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {blocks + 1}});
  request.costs[Recompute::kCheap] =
      equal_costs(request.dataflow, {.forward_seconds = 1e-3, .backward_seconds = 2e-3});
  for (int l = 1; l <= blocks; ++l) {
    LayerCost& block = request.costs[Recompute::kCheap].layers[l];
    block.weight_bytes = block.gradient_bytes = 1000;
    block.state_bytes = 2000;
    block.saved_bytes = 100;
  }
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap];
  return request;
}

// A block has 500 parameters, whatever its slice takes.
std::vector<TierDepth> largest_depths(const PlanRequest& request) {
  std::vector<double> parameters(request.dataflow.num_layers, 500);
  parameters.front() = parameters.back() = 0;
  return largest_depths(request, parameters);
}

TEST(Deepened, IsModelWithMoreBlocks) {
  const PlanRequest deep = deepened(request_of(3), 4);
  const PlanRequest same = request_of(7);
  EXPECT_EQ(deep.dataflow.num_layers, 9);
  EXPECT_EQ(deep.dataflow.ties[0].users, std::vector<int>{8});
  const auto consumer_of = [](const Dataflow& dataflow, int layer) {
    for (const Value& value : dataflow.values)
      if (value.producer == layer) return value.consumers;
    return std::vector<int>{};
  };
  for (int l = 0; l < 9; ++l) {
    EXPECT_EQ(consumer_of(deep.dataflow, l), consumer_of(same.dataflow, l)) << l;
    EXPECT_EQ(deep.costs[Recompute::kCheap].layers[l].weight_bytes,
              same.costs[Recompute::kCheap].layers[l].weight_bytes);
  }
  EXPECT_EQ(peak_bytes(make_plan(deep).ledger), peak_bytes(make_plan(same).ledger));
}

// Compares processor time, the best of a few, with a model of an eighth of the layers: 64 times as
// long would be quadratic.
TEST(Deepened, FindsBlockInTimeLinearInLayers) {
  const auto seconds = [](int blocks) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      PlanRequest request = request_of(blocks);
      const std::clock_t begin = std::clock();
      deepened(std::move(request), 0);
      best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    }
    return best;
  };
  EXPECT_LT(seconds(32768), 32 * std::max(1e-3, seconds(4096)));
}

TEST(LargestDepths, MatchArithmetic) {
  PlanRequest request = request_of(4);
  request.memory.device.count = 41 * 1000;
  const std::vector<TierDepth> depths = largest_depths(request);
  ASSERT_EQ(depths.size(), 3u);
  EXPECT_EQ(depths[0].layers, 10 + 2);  // 4100 bytes a block
  // 1100 per block, and two gradients while the first few layers have not freed what they saved.
  EXPECT_NEAR(depths[1].layers, (41000 - 2000) / 1100 + 2, 1);
  // 100 per block, the weights of two layers, two gradients.
  EXPECT_NEAR(depths[2].layers, (41000 - 4000) / 100 + 2, 11);
  // One more block does not fit.
  for (const TierDepth& depth : depths) EXPECT_FALSE(depth.any);
  request.memory.states = TierChoice::kDevice;
  EXPECT_NO_THROW(make_plan(deepened(request, depths[0].layers - 6)));
  EXPECT_THROW(make_plan(deepened(request, depths[0].layers - 5)), UserError);
  // The embedding and the head do not count as blocks.
  EXPECT_EQ(depths[0].blocks, 10);
  const std::string text = depths_sentence(depths, "model.layers");
  EXPECT_EQ(text.rfind("largest of this shape: model.layers=10 (5 k) on the device, ", 0), 0u)
      << text;
  EXPECT_EQ(depths_sentence(depths, "").rfind("largest of this shape: 10 equal layers (5", 0), 0u);
}

TEST(LargestDepths, StopAtTierThatHoldsAllTriedDepths) {
  TierDepth some{.placement = "on the device", .layers = 12, .blocks = 10, .parameters = 5e3};
  TierDepth any{
      .placement = "with states on the host", .layers = 4096, .blocks = 4094, .any = true};
  EXPECT_EQ(depths_sentence({some, any, any}, "model.layers"),
            "largest of this shape: model.layers=10 (5 k) on the device, at least "
            "model.layers=4094 (0) with states on the host");
}

TEST(LargestDepths, EndAtHostBudget) {
  PlanRequest request = request_of(4);
  request.memory.device.count = 41 * 1000;
  request.memory.host.count = 20 * 4000;
  EXPECT_EQ(largest_depths(request)[2].layers, 20 + 2);
  request.memory.device.count = 1000;
  EXPECT_EQ(largest_depths(request)[0].layers, 0);
  EXPECT_EQ(
      depths_sentence(largest_depths(request), "").rfind("largest of this shape: not this one", 0),
      0u);
  request.memory.device.count = 0;
  EXPECT_TRUE(largest_depths(request).empty());
}

// Chunks of 4 KiB: weights take one chunk per block, states two.
TEST(LargestDepths, ContinueOnDisk) {
  PlanRequest request = request_of(4);
  request.memory.device.count = 41 * 1000;
  request.memory.host.count = 20 * 4000;
  request.memory.disk.path = "/scratch";
  const std::vector<TierDepth> depths = largest_depths(request);
  ASSERT_EQ(depths.size(), 5u);
  EXPECT_EQ(depths[4].placement, "with weights, gradients and states on the disk");
  EXPECT_EQ(depths[3].placement, "with gradients on the host, weights and states on the disk");
  // 1000 of gradients per block, and staging buffers of 3 x 8 and 2 x 4 KiB.
  EXPECT_EQ(depths[3].layers, (80000 - 32 * 1024) / 1000 + 2);
  request.memory.disk.bytes.count = 30 * 4 * 4096;
  EXPECT_EQ(largest_depths(request)[3].layers, 30 + 2);
}

// Whatever depths the search tries, propose() fits the result and not one block more.
TEST(LargestDepths, AreLastOnesThatPropose) {
  for (const int ranks : {1, 2})
    for (const std::int64_t device : {23, 41, 160, 307}) {
      PlanRequest request = request_of(5);
      set_shape(request, {ranks, 4});
      request.memory.device.count = device * 1000;
      request.memory.host.count = 3 * device * 1000;
      request.memory.recompute = RecomputeMode::kAuto;
      for (LayerCost& layer : request.costs[Recompute::kCheap].layers)
        layer.forward_transient_bytes = 700;
      for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
        const std::size_t index = tier == Tier::kDevice ? 0 : 1;
        PlanRequest fixed = request;
        fixed.memory.weights = TierChoice::kDevice;
        fixed.memory.gradients = fixed.memory.states =
            tier == Tier::kDevice ? TierChoice::kDevice : TierChoice::kHost;
        const int copies = largest_depths(request)[index].layers - 7;
        ASSERT_GE(copies, 0) << ranks << " " << device;
        EXPECT_TRUE(fits(propose(deepened(fixed, copies)))) << ranks << " " << device;
        EXPECT_FALSE(fits(propose(deepened(fixed, copies + 1)))) << ranks << " " << device;
      }
    }
}

TEST(LargestDepths, EndAtSearchLimit) {
  PlanRequest request = request_of(2);
  request.memory.device.count = 100'000'000;
  const TierDepth depth = largest_depths(request)[0];
  EXPECT_TRUE(depth.any);
  EXPECT_EQ(depth.layers, 1 << 12);
  // For a model deeper than the limit, only the model itself is tried.
  const TierDepth deep = largest_depths(deepened(request, 5000))[0];
  EXPECT_TRUE(deep.any);
  EXPECT_EQ(deep.layers, 5004);
}

// Tries one budget after another. One block saves little but needs much while it runs, and more
// when recomputed than at first: if no other layer can be kept, this one has to be.
TEST(FirstThatFits, FitsWheneverPlanDoes) {
  int fit = 0, tried = 0;
  for (const int ranks : {1, 2})
    for (std::int64_t device = 50'000; device <= 150'000; device += 500, ++tried) {
      PlanRequest request = request_of(4);
      set_shape(request, {ranks, 4});
      request.memory.device.count = device;
      MemoryOptions& memory = request.memory;
      memory.recompute = RecomputeMode::kAuto;
      memory.weights = memory.gradients = memory.states = memory.activations = TierChoice::kDevice;
      for (LayerCost& layer : request.costs[Recompute::kCheap].layers) layer.saved_bytes = 20'000;
      request.costs[Recompute::kCheap].layers[2].saved_bytes = 300;
      request.costs[Recompute::kCheap].layers[2].forward_transient_bytes = 50'000;
      for (ValueCost& value : request.costs[Recompute::kCheap].values) value.bytes = 1000;
      const bool fits_somehow = fits(propose(request));
      EXPECT_EQ(fits(first_that_fits(request)), fits_somehow) << ranks << " " << device;
      fit += fits_somehow;
    }
  EXPECT_GT(fit, tried / 4);
  EXPECT_LT(fit, tried);
}

}  // namespace
}  // namespace strata
