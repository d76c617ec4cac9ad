#include "strata/optim/step_end.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "strata/device/device.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/loss_scale.h"
#include "strata/optim/step_primitives.h"

namespace strata {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

StepScalars scaled(double scale) {
  StepScalars scalars;
  carry({.scale = scale, .dynamic = true, .good_steps = 3, .skipped = 1}, scalars);
  return scalars;
}

TEST(StepEnd, ComputesLossNormAndFactor) {
  StepScalars scalars;
  const double sums[] = {9, 16, 5};
  end_step(sums, /*clip=*/2, scalars);
  EXPECT_EQ(scalars.loss, 5);
  EXPECT_EQ(scalars.squares, 25);
  EXPECT_EQ(scalars.norm, 5);
  EXPECT_EQ(scalars.factor, 0.4);
  EXPECT_EQ(scalars.skip, 0);
  end_step(sums, /*clip=*/0, scalars);
  EXPECT_EQ(scalars.factor, 1);
}

TEST(StepEnd, AddsSquaresInAscendingOrder) {
  StepScalars scalars;
  const double sums[] = {1e16, 1, 1, 0};  // (1e16 + 1) + 1 = 1e16, 1e16 + (1 + 1) is more
  end_step(sums, 0, scalars);
  EXPECT_EQ(scalars.squares, 1e16);
  const double blocks[] = {7, 1e16, 1, 1, 3};
  double layers[] = {-1, -1, -1};
  const LayerBlocks ranges[] = {{1, 4, 2}, {4, 5, 0}};
  sum_layers(blocks, ranges, layers);
  EXPECT_EQ(layers[2], 1e16);
  EXPECT_EQ(layers[0], 3);
  EXPECT_EQ(layers[1], -1);
}

TEST(StepEnd, DividesNormAndGradientsByScale) {
  StepScalars scalars = scaled(1024);
  const double sums[] = {25.0 * 1024 * 1024, 0};
  end_step(sums, /*clip=*/2, scalars);
  EXPECT_EQ(scalars.norm, 5);
  EXPECT_EQ(scalars.factor, 0.4 / 1024);
  EXPECT_EQ(scalars.good_steps, 4);
  EXPECT_EQ(scalars.loss_scale, 1024);
}

TEST(StepEnd, SkipsUpdateThatIsNotFiniteAndHalvesScale) {
  for (const double squares : {kInfinity, std::nan("")}) {
    StepScalars scalars = scaled(1024);
    const double sums[] = {1, squares, 0};
    end_step(sums, 1, scalars);
    EXPECT_EQ(scalars.skip, 1);
    EXPECT_EQ(scalars.loss_scale, 512);
    EXPECT_EQ(scalars.good_steps, 0);
    EXPECT_EQ(scalars.skipped_updates, 2);
    StepScalars fixed;
    end_step(sums, 1, fixed);
    EXPECT_EQ(fixed.skip, 0);  // an update is never skipped: the run fails instead
  }
}

TEST(StepEnd, DoublesScaleAfterGoodSteps) {
  StepScalars scalars = scaled(1024);
  scalars.good_steps = LossScale::kGrowthSteps - 1;
  const double sums[] = {1, 0};
  end_step(sums, 1, scalars);
  EXPECT_EQ(scalars.loss_scale, 2048);
  EXPECT_EQ(scalars.good_steps, 0);
}

TEST(StepEnd, WithoutGradientsUpdatesNothing) {
  StepScalars scalars;
  scalars.has_gradients = 0;
  const double sums[] = {1, 0};
  end_step(sums, 1, scalars);
  EXPECT_EQ(scalars.skip, 1);
  EXPECT_EQ(scalars.skipped_updates, 1);
}

TEST(StepEnd, WithoutUpdateKeepsLossScale) {
  StepScalars scalars = scaled(1024);
  scalars.updates = 0;
  const double sums[] = {kInfinity, 0};
  end_step(sums, 1, scalars);
  EXPECT_EQ(scalars.skip, 1);
  EXPECT_EQ(scalars.loss_scale, 1024);
  EXPECT_EQ(scalars.skipped_updates, 1);
}

TEST(StepPrimitives, UpdateWithScalarsOfStep) {
  const OptimizerOptions options{.kind = OptimizerKind::kAdamW};
  const auto fresh = [] {
    return UpdateRange{.weights = at::full({2000}, 2.0f),
                       .gradients = at::full({2000}, 0.3f),
                       .slots = {at::full({2000}, 0.1f), at::full({2000}, 0.2f)},
                       .decay_numel = 1500};
  };
  StepScalars scalars;
  scalars.step = 6;
  scalars.skipped_updates = 2;
  scalars.learning_rate = 1e-2;
  scalars.factor = 0.25;
  UpdateRange expected = fresh(), range = fresh();
  Optimizer(options).update(expected, /*step=*/5, 1e-2, /*gradient_factor=*/0.25);
  const Optimizer optimizer(options);
  const BegunUpdate begun = optimizer.begin_update(scalars, Device{});
  optimizer.update(range, begun);
  EXPECT_TRUE(range.weights.equal(expected.weights));
  EXPECT_TRUE(range.slots[1].equal(expected.slots[1]));
  // The begun update applies to all ranges of the step.
  UpdateRange another = fresh();
  optimizer.update(another, begun);
  EXPECT_TRUE(another.weights.equal(expected.weights));
  scalars.skip = 1;
  optimizer.update(range, begun);
  EXPECT_TRUE(range.weights.equal(expected.weights));
}

TEST(StepPrimitives, WriteAllBlocksOfLayer) {
  const std::int64_t numel = 5 * kFlatBlock + 7;
  const at::Tensor gradients = at::ones({3 * kFlatBlock});
  const FlatRange counted[] = {{0, 2 * kFlatBlock + 100}};
  const at::Tensor sums = at::full({num_blocks(numel)}, -1.0, host_options(at::kDouble));
  host_step_primitives().block_sums(gradients, {kFlatBlock, 4 * kFlatBlock}, counted, sums);
  const double expected[] = {0, kFlatBlock, 100, 0, 0, 0};
  for (std::int64_t b = 0; b < sums.numel(); ++b) EXPECT_EQ(sums[b].item<double>(), expected[b]);
}

TEST(StepPrimitives, MoveStatisticUnlessUpdateIsSkipped) {
  const StatisticRange range{at::full({3}, 2.0f), at::full({3}, 4.0, at::kDouble), 0.25};
  StepScalars scalars;
  host_step_primitives().move_statistic(range, scalars);
  EXPECT_EQ(range.values[0].item<float>(), 2.5f);
  scalars.skip = 1;
  host_step_primitives().move_statistic(range, scalars);
  EXPECT_EQ(range.values[0].item<float>(), 2.5f);
}

}  // namespace
}  // namespace strata
