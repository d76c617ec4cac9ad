// Compares updates of one layer with loops in fp64, and parts of the layer with the whole.
#include "strata/optim/lamb.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "strata/device/thread_pool.h"
#include "strata/optim/master_weights.h"

namespace strata {
namespace {

const OptimizerOptions kOptions{.kind = OptimizerKind::kLamb,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-6,
                                .weight_decay = 0.1,
                                .min_coeff = 0.05,
                                .max_coeff = 0.8};
constexpr double kRate = 0.02, kFactor = 0.5;
constexpr std::int64_t kUpdates = 4;

LayerLayout example_layout() {
  return make_layout({{.name = "small", .shape = {30, 100}, .decay = true},
                      {.name = "large", .shape = {50, 100}, .decay = true},
                      {.name = "zero", .shape = {40}, .decay = true},
                      {.name = "bias", .shape = {2000}}},
                     {false, false, false, false});
}

at::Tensor waves(std::int64_t numel, double frequency, double size) {
  return (at::arange(numel, at::kFloat) * frequency).sin() * size;
}

UpdateRange example_range(const LayerLayout& layout) {
  const std::int64_t numel = layout.trained_numel;
  UpdateRange range{.weights = waves(numel, 0.7, 1),
                    .gradients = at::zeros({numel}),
                    .slots = {at::zeros({numel}), at::zeros({numel})},
                    .decay_numel = layout.decay_numel};
  range.weights.narrow(0, 0, 3000).mul_(0.01);  // its ratio is less than the smallest
  range.weights.narrow(0, layout.placements[2].offset, 40).zero_();
  return range;
}

at::Tensor gradients_of(std::int64_t numel, std::int64_t update) {
  return waves(numel, 0.23 + 0.01 * static_cast<double>(update), 1e-2);
}

// Updates the layer in parts, each as a rank with this shard does.
void update_in(const UpdateRange& whole, const LayerLayout& layout,
               const std::vector<FlatRange>& shards, std::vector<double>* used = nullptr) {
  const WeightBlocks blocks(layout);
  const auto optimizer = make_optimizer(kOptions);
  for (std::int64_t update = 1; update <= kUpdates; ++update) {
    whole.gradients.copy_(gradients_of(whole.weights.numel(), update));
    const LambStep step = lamb_step(kOptions, update, kRate, kFactor);
    const at::Tensor squares = at::zeros({2 * blocks.size()}, at::kDouble);
    for (const FlatRange& shard : shards) {
      const FlatRange of_shard = blocks.in(shard);
      squares.narrow(0, 2 * of_shard.begin, 2 * of_shard.size())
          .copy_(find_directions(step, blocks, narrowed(whole, shard), shard.begin));
    }
    const std::vector<double> ratios = trust_ratios(step, add_blocks(blocks, squares));
    if (used) used->insert(used->end(), ratios.begin(), ratios.end());
    for (const FlatRange& shard : shards) {
      const UpdateRange part = narrowed(whole, shard);
      move_by_directions(step, blocks, part, shard.begin, ratios);
      optimizer->update(narrowed(part, {part.decay_numel, shard.size()}), update, kRate, kFactor);
    }
  }
}

struct Expected {
  std::vector<double> weights, means, squares, ratios;
};

Expected expected_of(const UpdateRange& before, const LayerLayout& layout) {
  const std::int64_t numel = before.weights.numel();
  Expected e;
  for (std::int64_t i = 0; i < numel; ++i)
    e.weights.push_back(before.weights.const_data_ptr<float>()[i]);
  e.means.resize(static_cast<std::size_t>(numel));
  e.squares.resize(static_cast<std::size_t>(numel));
  for (int update = 1; update <= kUpdates; ++update) {
    const at::Tensor gradients = gradients_of(numel, update);
    for (std::size_t w = 0; w < layout.specs.size(); ++w) {
      const WeightPlacement& place = layout.placements[w];
      const bool decays = layout.specs[w].decay;
      std::vector<double> u;
      double of_weight = 0, of_direction = 0;
      for (std::int64_t k = 0; k < place.numel; ++k) {
        const auto i = static_cast<std::size_t>(place.offset + k);
        const double g = kFactor * gradients.const_data_ptr<float>()[i];
        e.means[i] = 0.9 * e.means[i] + 0.1 * g;
        e.squares[i] = 0.99 * e.squares[i] + 0.01 * g * g;
        u.push_back(e.means[i] / (1 - std::pow(0.9, update)) /
                        (std::sqrt(e.squares[i] / (1 - std::pow(0.99, update))) + 1e-6) +
                    (decays ? 0.1 * e.weights[i] : 0));
        of_weight += e.weights[i] * e.weights[i];
        of_direction += u.back() * u.back();
      }
      double ratio = 1;
      if (decays && of_weight > 0 && of_direction > 0)
        ratio = std::min(0.8, std::max(0.05, std::sqrt(of_weight / of_direction)));
      if (decays) e.ratios.push_back(ratio);
      for (std::int64_t k = 0; k < place.numel; ++k)
        e.weights[static_cast<std::size_t>(place.offset + k)] -= kRate * ratio * u[k];
    }
  }
  return e;
}

TEST(Lamb, FollowsFormulas) {
  const LayerLayout layout = example_layout();
  const UpdateRange range = example_range(layout);
  const Expected expected = expected_of(range, layout);
  std::vector<double> ratios;
  update_in(range, layout, {{0, layout.trained_numel}}, &ratios);
  ASSERT_EQ(ratios.size(), 3 * kUpdates);
  EXPECT_EQ(ratios[0], 0.05);  // less than that
  EXPECT_GT(ratios[1], 0.05);
  EXPECT_LT(ratios[1], 0.8);
  EXPECT_EQ(ratios[2], 1);  // its norm is 0
  for (std::size_t i = 0; i < ratios.size(); ++i) EXPECT_NEAR(ratios[i], expected.ratios[i], 1e-6);
  for (std::size_t i = 0; i < expected.weights.size(); ++i) {
    ASSERT_NEAR(range.weights.const_data_ptr<float>()[i], expected.weights[i], 1e-6) << i;
    ASSERT_NEAR(range.slots[0].const_data_ptr<float>()[i], expected.means[i], 1e-9) << i;
    ASSERT_NEAR(range.slots[1].const_data_ptr<float>()[i], expected.squares[i], 1e-11) << i;
  }
}

TEST(Lamb, RatioIsLimitedAndOneWithoutANorm) {
  const LambStep step = lamb_step(kOptions, 1, kRate, kFactor);
  EXPECT_DOUBLE_EQ(trust_ratio(step, 1, 4), 0.5);
  EXPECT_EQ(trust_ratio(step, 100, 1), 0.8);
  EXPECT_EQ(trust_ratio(step, 1, 1e6), 0.05);
  EXPECT_EQ(trust_ratio(step, 0, 1), 1);
  EXPECT_EQ(trust_ratio(step, 1, 0), 1);
  EXPECT_EQ(trust_ratios(step, std::vector<double>{1, 4, 100, 1}), (std::vector<double>{0.5, 0.8}));
}

TEST(Lamb, UndividedWeightsCountForFirstSliceOnly) {
  const WeightBlocks blocks(
      make_layout({{.name = "divided", .shape = {2500}, .decay = true, .split = {.axis = 0}},
                   {.name = "whole", .shape = {2000}, .decay = true}},
                  {false, false}));
  const at::Tensor squares = at::arange(2 * blocks.size(), at::kDouble);  // 3 and 3 blocks
  EXPECT_EQ(add_blocks(blocks, squares),
            (std::vector<double>{0 + 2 + 4, 1 + 3 + 5, 6 + 8 + 10, 7 + 9 + 11}));
  EXPECT_EQ(add_blocks(blocks, squares, /*slice=*/1),
            (std::vector<double>{0 + 2 + 4, 1 + 3 + 5, 0, 0}));
}

void expect_same(const UpdateRange& a, const UpdateRange& b) {
  EXPECT_TRUE(at::equal(a.weights, b.weights));
  for (int slot = 0; slot < 2; ++slot) EXPECT_TRUE(at::equal(a.slots[slot], b.slots[slot]));
}

TEST(Lamb, CutsAndThreadsChangeNoBit) {
  const LayerLayout layout = example_layout();
  const UpdateRange whole = example_range(layout);
  update_in(whole, layout, {{0, layout.trained_numel}});
  for (const int parts : {2, 3, 5, 9, 20}) {
    ThreadPool pool(parts);
    const ThreadPoolScope scope(pool);
    const UpdateRange divided = example_range(layout);
    update_in(divided, layout, cut({0, layout.trained_numel}, parts));
    expect_same(divided, whole);
  }
}

TEST(Lamb, WritesSixteenBitWeights) {
  const LayerLayout layout = example_layout();
  const std::vector<FlatRange> shards{{0, layout.trained_numel}};
  UpdateRange fp32 = example_range(layout), rounded = example_range(layout),
              split = example_range(layout);
  rounded.rounded = at::zeros({layout.trained_numel}, at::kHalf);
  const at::Tensor values = split.weights.clone();
  split.weights = at::zeros({layout.trained_numel}, at::kBFloat16);
  split.remainder = at::zeros({layout.trained_numel}, at::kShort);
  MasterWeights{split.weights, split.remainder}.assign(values);
  for (const UpdateRange* range : {&fp32, &rounded, &split}) update_in(*range, layout, shards);
  expect_same(rounded, fp32);
  // Weights begin at multiples of 64 bytes; no update writes the gaps between them.
  const at::Tensor joined = MasterWeights{split.weights, split.remainder}.whole();
  for (const WeightPlacement& place : layout.placements) {
    const at::Tensor of_weight = fp32.weights.narrow(0, place.offset, place.numel);
    EXPECT_TRUE(
        at::equal(rounded.rounded.narrow(0, place.offset, place.numel), of_weight.to(at::kHalf)));
    EXPECT_TRUE(at::equal(joined.narrow(0, place.offset, place.numel), of_weight));
  }
}

}  // namespace
}  // namespace strata
