#include "strata/optim/learning_rate.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

LearningRateSchedule schedule(Decay decay) {
  return {
      .peak = 1.0, .warmup_steps = 4, .total_steps = 104, .decay = decay, .final_fraction = 0.1};
}

TEST(LearningRateSchedule, WarmsUpToPeak) {
  for (const Decay decay : {Decay::kCosine, Decay::kLinear, Decay::kConstant}) {
    EXPECT_DOUBLE_EQ(schedule(decay).at(0), 0.25);
    EXPECT_DOUBLE_EQ(schedule(decay).at(2), 0.75);
    EXPECT_DOUBLE_EQ(schedule(decay).at(3), 1.0);
  }
}

TEST(LearningRateSchedule, EndsAtFinalFraction) {
  for (const Decay decay : {Decay::kCosine, Decay::kLinear}) {
    EXPECT_DOUBLE_EQ(schedule(decay).at(103), 0.1);
    EXPECT_DOUBLE_EQ(schedule(decay).at(1000), 0.1);
    EXPECT_DOUBLE_EQ(schedule(decay).at(53), 0.55);  // half-way
  }
  EXPECT_DOUBLE_EQ(schedule(Decay::kConstant).at(103), 1.0);
}

TEST(LearningRateSchedule, FallsAtEveryStepAfterWarmup) {
  for (const Decay decay : {Decay::kCosine, Decay::kLinear}) {
    for (std::int64_t step = 4; step < 104; ++step) {
      EXPECT_LT(schedule(decay).at(step), schedule(decay).at(step - 1));
    }
  }
}

TEST(LearningRateSchedule, StartsAtPeakWithoutWarmup) {
  LearningRateSchedule rate = schedule(Decay::kLinear);
  rate.warmup_steps = 0;
  rate.total_steps = 11;
  EXPECT_DOUBLE_EQ(rate.at(0), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(10), 0.1);
}

TEST(LearningRateSchedule, SupportsRunsOfOneStepAndWarmupToEnd) {
  EXPECT_DOUBLE_EQ((LearningRateSchedule{.peak = 2.0, .total_steps = 1}.at(0)), 2.0);
  const LearningRateSchedule all_warmup{.peak = 1.0, .warmup_steps = 10, .total_steps = 10};
  EXPECT_DOUBLE_EQ(all_warmup.at(8), 0.9);
  EXPECT_DOUBLE_EQ(all_warmup.at(9), 1.0);
}

TEST(Decay, HasNamesOfRecipes) {
  EXPECT_STREQ(name_of(Decay::kCosine), "cosine");
  EXPECT_STREQ(name_of(Decay::kLinear), "linear");
  EXPECT_STREQ(name_of(Decay::kConstant), "constant");
}

}  // namespace
}  // namespace strata
