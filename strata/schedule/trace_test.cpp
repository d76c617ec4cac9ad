#include "strata/schedule/trace.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Clock, NeverDecreases) {
  double last = now_seconds();
  for (int i = 0; i < 1000; ++i) {
    const double now = now_seconds();
    ASSERT_GE(now, last);
    last = now;
  }
}

constexpr Action kForward{.op = Op::kForward, .stage = 1, .micro_batch = 2, .layers = {3, 5}};

TEST(TraceSpan, AddsOneEventAtItsEnd) {
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

TEST(TraceSpan, UnsetNumbersAreMinusOne) {
  TraceLog log;
  {
    const TraceSpan span(&log, {.op = Op::kReduceNormAndLoss});
  }
  ASSERT_EQ(log.events().size(), 1u);
  EXPECT_EQ(log.events()[0].stage, -1);
  EXPECT_EQ(log.events()[0].micro_batch, -1);
  EXPECT_EQ(log.events()[0].first_layer, -1);
}

TEST(TraceSpan, WithoutLogDoesNothing) { const TraceSpan span(nullptr, kForward); }

// A forward that waits for its weights, computes, and waits for the weights of its tie.
TEST(TraceLog, SplitsActionAtItsWaits) {
  TraceLog log;
  log.add({Op::kPrefetchWeights, 1, -1, 3, 0, 1});
  log.add({Op::kPrefetchWeights, -1, -1, 3, 1.00001, 2});
  log.add({Op::kPrefetchWeights, -1, -1, 0, 4, 5});
  log.add_around({Op::kForward, 1, 2, 3, 1, 7}, 1);
  const std::vector<TraceEvent>& events = log.events();
  const auto expect = [&](std::size_t i, Op op, int layer, double begin, double end) {
    EXPECT_EQ(events[i].op, op) << i;
    EXPECT_EQ(events[i].first_layer, layer) << i;
    EXPECT_EQ(events[i].begin_seconds, begin) << i;
    EXPECT_EQ(events[i].end_seconds, end) << i;
  };
  ASSERT_EQ(events.size(), 5u);
  expect(0, Op::kPrefetchWeights, 3, 0, 1);
  expect(1, Op::kPrefetchWeights, 3, 1, 2);  // from the start of the action
  expect(2, Op::kForward, 3, 2, 4);
  expect(3, Op::kPrefetchWeights, 0, 4, 5);
  expect(4, Op::kForward, 3, 5, 7);
  EXPECT_EQ(events[1].stage, 1);
  EXPECT_EQ(events[1].micro_batch, 2);
  EXPECT_EQ(events[0].micro_batch, -1);  // belongs to another action
}

TEST(TraceSpan, IsSplitAtEventsAddedWithinIt) {
  TraceLog log;
  {
    // read first, or the time between both reads would be an event
    const double now = now_seconds();
    const TraceSpan span(&log, kForward);
    log.add({Op::kPrefetchWeights, -1, -1, 3, now, now});
  }
  ASSERT_EQ(log.events().size(), 2u);
  EXPECT_EQ(log.events()[0].op, Op::kPrefetchWeights);
  EXPECT_EQ(log.events()[1].op, Op::kForward);
}

TEST(TraceLog, ClearRemovesEvents) {
  TraceLog log;
  {
    const TraceSpan span(&log, kForward);
  }
  log.clear();
  EXPECT_TRUE(log.events().empty());
}

}  // namespace
}  // namespace strata
