#include "strata/schedule/trace.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Clock, NeverGoesBack) {
  double last = now_seconds();
  for (int i = 0; i < 1000; ++i) {
    const double now = now_seconds();
    ASSERT_GE(now, last);
    last = now;
  }
}

constexpr Action kForward{.op = Op::kForward, .stage = 1, .micro_batch = 2, .layers = {3, 5}};

TEST(TraceSpan, AddsOneEventWhenItEnds) {
  TraceLog log;
  const double before = now_seconds();
  {
    const TraceSpan span(&log, kForward);
    EXPECT_TRUE(log.events().empty());
  }
  const double after = now_seconds();
  ASSERT_EQ(log.events().size(), 1u);
  const TraceEvent& event = log.events().front();
  EXPECT_EQ(event.op, Op::kForward);
  EXPECT_EQ(event.stage, 1);
  EXPECT_EQ(event.micro_batch, 2);
  EXPECT_EQ(event.first_layer, 3);
  EXPECT_LE(before, event.begin_seconds);
  EXPECT_LE(event.begin_seconds, event.end_seconds);
  EXPECT_LE(event.end_seconds, after);
}

TEST(TraceSpan, LeavesUnknownNumbersAtMinusOne) {
  TraceLog log;
  {
    const TraceSpan span(&log, {.op = Op::kReduceNormAndLoss});
  }
  ASSERT_EQ(log.events().size(), 1u);
  EXPECT_EQ(log.events()[0].stage, -1);
  EXPECT_EQ(log.events()[0].micro_batch, -1);
  EXPECT_EQ(log.events()[0].first_layer, -1);
}

TEST(TraceSpan, DoesNothingWithoutALog) { const TraceSpan span(nullptr, kForward); }

TEST(TraceLog, ForgetsWhenCleared) {
  TraceLog log;
  {
    const TraceSpan span(&log, kForward);
  }
  log.clear();
  EXPECT_TRUE(log.events().empty());
}

}  // namespace
}  // namespace strata
