#include "strata/optim/loss_scale.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(LossScale, GrowsAfterGoodStepsAndShrinksAtOnce) {
  LossScale scale = LossScale::half();
  for (int i = 0; i < LossScale::kGrowthSteps; ++i) scale.good();
  EXPECT_EQ(scale.scale, 131072);
  EXPECT_EQ(scale.good_steps, 0);
  scale.skip();
  EXPECT_EQ(scale.scale, 65536);
  EXPECT_EQ(scale.skipped, 1);
  for (int i = 0; i < 100; ++i) scale.skip();
  EXPECT_EQ(scale.scale, LossScale::kSmallest);
}

TEST(LossScale, StaysOneIfNotDynamic) {
  LossScale scale = LossScale::fixed();
  for (int i = 0; i < 2 * LossScale::kGrowthSteps; ++i) scale.good();
  EXPECT_EQ(scale.scale, 1);
}

}  // namespace
}  // namespace strata
