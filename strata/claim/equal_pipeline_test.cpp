#include "strata/claim/equal_pipeline.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

// Huang et al. 2019; Narayanan et al. 2021, section 2.2.
TEST(EqualPipeline, HasThePublishedBubbles) {
  for (const int p : {2, 4, 8})
    for (const int m : {8, 32}) {
      const double fill = p - 1;
      for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1f1b})
        EXPECT_NEAR(bubble_rate({.schedule = kind, .ranks = p, .micro_batches = m}),
                    fill / (m + fill), 1e-9);
      for (const int v : {2, 4})
        EXPECT_NEAR(bubble_rate({.schedule = ScheduleKind::kInterleaved,
                                 .ranks = p,
                                 .micro_batches = m,
                                 .virtual_stages = v}),
                    fill / v / (m + fill / v), 1e-9);
      // Qi et al. 2023, table 2: no idle time with equal halves and two stages a rank.
      EXPECT_NEAR(pipeline_seconds({.schedule = ScheduleKind::kZbv,
                                    .ranks = p,
                                    .micro_batches = 2 * m,
                                    .virtual_stages = 2}),
                  3.0 * 2 * m, 1e-9);
    }
}

// A recompute runs while a rank waits for its gradient: with one micro-batch only the last stage's
// adds to a step.
TEST(EqualPipeline, HidesRecomputesBehindWaits) {
  const EqualPipeline one{.schedule = ScheduleKind::kGpipe, .ranks = 4, .micro_batches = 1};
  EqualPipeline again = one;
  again.recomputes = true;
  EXPECT_NEAR(pipeline_seconds(again), pipeline_seconds(one) + 1, 1e-9);
}

// torchgpipe's "except_last": a half of a mini-batch of two runs forward again.
TEST(EqualPipeline, KeepsOneMicroBatch) {
  EqualPipeline pipeline{.schedule = ScheduleKind::kGpipe, .micro_batches = 2, .recomputes = true};
  EXPECT_NEAR(equal_speed(pipeline), 1 / 4.0, 1e-9);
  pipeline.keeps_one = true;
  EXPECT_NEAR(equal_speed(pipeline), 1 / 3.5, 1e-9);
  pipeline.recomputes = false;
  EXPECT_NEAR(equal_speed(pipeline), 1 / 3.0, 1e-9);
  // With one micro-batch nothing runs again on any rank.
  EqualPipeline one{.schedule = ScheduleKind::kGpipe, .ranks = 4};
  const double speed = equal_speed(one);
  one.recomputes = one.keeps_one = true;
  EXPECT_NEAR(equal_speed(one), speed, 1e-9);
}

TEST(EqualPipeline, CountsMessages) {
  const EqualPipeline pipeline{.ranks = 3, .micro_batches = 1, .transfer = 0.5};
  EXPECT_NEAR(pipeline_seconds(pipeline), 3 * 3 + 4 * 0.5, 1e-9);
}

}  // namespace
}  // namespace strata
