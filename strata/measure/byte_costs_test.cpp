#include "strata/measure/byte_costs.h"

#include <gtest/gtest.h>

#include "strata/nn/graph/same_layer_test.h"

namespace strata {
namespace {

// Saves 400 bytes, 100 fewer at each level after kCheap, where backward repeats 1, then 3 billion
// operations. Its backward has 14 kernels, like that of any small layer.
class LevelLayer final : public SameLayer {
 public:
  LayerBytes bytes(std::span<const TensorSpec>, Recompute level) const override {
    if (level == Recompute::kNone) return {.saved = 1000};
    return {.saved = 500 - 100 * static_cast<std::int64_t>(level)};
  }
  double forward_flops(std::span<const TensorSpec>) const override { return 5e9; }
  Recompute deepest_recompute() const override { return Recompute::kAttention; }
  RepeatedWork repeated_work(std::span<const TensorSpec>, Recompute level) const override {
    const bool attention = level == Recompute::kAttention;
    return {.flops = attention ? 3e9 : 1e9, .kernels = attention ? 5 : 4, .sum_bytes = 64};
  }
};

class LayerWithoutLevels final : public SameLayer {
 public:
  LayerBytes bytes(std::span<const TensorSpec>, Recompute level) const override {
    EXPECT_LE(level, Recompute::kCheap);
    return {.saved = 7};
  }
  double forward_flops(std::span<const TensorSpec>) const override { return 1e9; }
};

CostTable costs_at(Recompute level, bool counts_passes = false) {
  Sequential model({"x"});
  model.add("levels", std::make_shared<LevelLayer>());
  model.add("none", std::make_shared<LayerWithoutLevels>());
  return byte_costs(model, {.batch_inputs = {{{4, 8}, at::kFloat}},
                            .samples = 4,
                            .micro_batch = 4,
                            .recompute = level,
                            .flops_per_second = 1e9,
                            .memory_bytes_per_second = 1e3,
                            .counts_passes = counts_passes});
}

TEST(ByteCosts, CountWhatBackwardRepeats) {
  const LayerCost cheap = costs_at(Recompute::kCheap).layers[0];
  EXPECT_DOUBLE_EQ(cheap.forward_seconds, 5);
  EXPECT_DOUBLE_EQ(cheap.backward_seconds, 10);
  EXPECT_EQ(cheap.work.remade_bytes, 0);
  const LayerCost products = costs_at(Recompute::kProducts).layers[0];
  EXPECT_DOUBLE_EQ(products.backward_seconds, 11);
  EXPECT_EQ(products.saved_bytes, 300);
  EXPECT_EQ(products.work.remade_bytes, 100);
  EXPECT_EQ(products.work.backward_kernels, cheap.work.backward_kernels + 4);
  EXPECT_EQ(products.work.backward_sum_bytes, cheap.work.backward_sum_bytes + 64);
  EXPECT_FALSE(products.work.attention.runs_again);
  const LayerCost attention = costs_at(Recompute::kAttention).layers[0];
  EXPECT_DOUBLE_EQ(attention.backward_seconds, 13);
  EXPECT_DOUBLE_EQ(attention.forward_seconds, 5);
  EXPECT_EQ(attention.work.remade_bytes, 200);
  EXPECT_TRUE(attention.work.attention.runs_again);
}

// Each remade byte is written and read once.
TEST(ByteCosts, CountPassesOfWhatBackwardRepeats) {
  const double cheap = costs_at(Recompute::kCheap, true).layers[0].backward_seconds;
  const double products = costs_at(Recompute::kProducts, true).layers[0].backward_seconds;
  EXPECT_NEAR(products - cheap, 1 + 2 * 100 / 1e3, 1e-9);
}

TEST(ByteCosts, AreTheSameAtDeeperLevelsThanALayerHas) {
  const LayerCost cheap = costs_at(Recompute::kCheap).layers[1];
  const LayerCost attention = costs_at(Recompute::kAttention).layers[1];
  EXPECT_EQ(attention.saved_bytes, cheap.saved_bytes);
  EXPECT_EQ(attention.backward_seconds, cheap.backward_seconds);
  EXPECT_EQ(attention.work.backward_kernels, cheap.work.backward_kernels);
  EXPECT_FALSE(attention.work.attention.runs_again);
}

class LayerWithWeight final : public SameLayer {
 public:
  std::vector<WeightSpec> weights() const override { return {{.name = "w", .shape = {10, 16}}}; }
};

// Three layers have messages at a time, each at most what it sends, receives and returns.
TEST(ByteCosts, CountMessagesOfSigns) {
  Sequential model({"x"});
  model.add("layer", std::make_shared<LayerWithWeight>());
  CostRequest request{.batch_inputs = {{{4, 8}, at::kFloat}}, .samples = 4, .micro_batch = 4};
  EXPECT_EQ(byte_costs(model, request).layers[0].sign_bytes, 0);
  request.sends_signs = true;
  EXPECT_EQ(byte_costs(model, request).layers[0].sign_bytes, 160 * 9 / 8);
}

class LayerWithDecay final : public SameLayer {
 public:
  std::vector<WeightSpec> weights() const override {
    return {{.name = "w", .shape = {10, 16}, .decay = true}, {.name = "bias", .shape = {48}}};
  }
};

// Directions are written and read, and weights read again: 12 more bytes than AdamW's 32 for each
// weight with decay.
TEST(ByteCosts, CountSecondPassOfTrustRatios) {
  Sequential model({"x"});
  model.add("layer", std::make_shared<LayerWithDecay>());
  CostRequest request{.batch_inputs = {{{4, 8}, at::kFloat}}, .samples = 4, .micro_batch = 4};
  const double adam = byte_costs(model, request).layers[0].update_seconds;
  request.trust_ratios = true;
  const double lamb = byte_costs(model, request).layers[0].update_seconds;
  EXPECT_NEAR((lamb - adam) * request.memory_bytes_per_second, 160 * 12, 1e-6);
}

}  // namespace
}  // namespace strata
