#include "strata/pipeline/device_tracks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/base/measurement.h"
#include "strata/device/timed_queue_test.h"

namespace strata {
namespace {

struct Tracks : testing::Test {
  std::shared_ptr<TimedQueue> queue = std::make_shared<TimedQueue>();
  TrackTrace trace;
  double before = now_seconds();
  DeviceTracks tracks{Stream({}, queue), trace};
};

TEST_F(Tracks, RecordWhenDeviceWorked) {
  queue->give(0.001);  // the rank was late, or it is another rank's work
  {
    const auto span = tracks.span(TrackKind::kCompute, 3);
    queue->give(0.002);
  }
  // A span starts when the device reaches it, but not before it is enqueued.
  const double first = now_seconds();
  queue->give(0.004);
  double second = 0;
  {
    const auto span = tracks.span(TrackKind::kCommunicate, -1);
    second = now_seconds();
    queue->give(0.008);
  }
  tracks.settle();
  EXPECT_TRUE(trace.take().empty());  // it has not started, and no call waits
  queue->perform();
  while (now_seconds() < second + 0.02) {
  }
  tracks.settle();
  const std::vector<TrackEvent> events = trace.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].track, TrackKind::kCompute);
  EXPECT_EQ(events[0].layer, 3);
  EXPECT_NEAR(events[0].end_seconds - events[0].begin_seconds, 0.002, 1e-9);
  EXPECT_GE(events[0].begin_seconds, before + 0.001);
  EXPECT_LE(events[0].begin_seconds, first + 0.002);
  EXPECT_EQ(events[1].track, TrackKind::kCommunicate);
  EXPECT_EQ(events[1].layer, -1);
  EXPECT_GE(events[1].begin_seconds - events[0].end_seconds, 0.004 - 1e-9);
  EXPECT_LE(events[1].begin_seconds, std::max(events[0].end_seconds + 0.004, second) + 1e-9);
  EXPECT_NEAR(events[1].end_seconds - events[1].begin_seconds, 0.008, 1e-9);
}

TEST_F(Tracks, RecordOuterOfNestedSpans) {
  {
    const auto outer = tracks.span(TrackKind::kCompute, 0);
    queue->give(0.001);
    {
      const auto inner = tracks.span(TrackKind::kCompute, 1);
      queue->give(0.002);
    }
    queue->perform();
    tracks.settle();  // the open one stays
  }
  queue->perform();
  tracks.settle();
  const std::vector<TrackEvent> events = trace.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].layer, 0);
  EXPECT_NEAR(events[0].end_seconds - events[0].begin_seconds, 0.003, 1e-9);
  EXPECT_EQ(queue->recorded(), 3);  // the comparison's and one pair
}

// With a slow or fast device clock no work starts before it was enqueued or ends after it was seen.
TEST_F(Tracks, KeepClocksAligned) {
  for (const double drift : {5.0, -5.0}) {
    queue->give(drift);
    queue->perform();
    const double enqueued = now_seconds();
    {
      const auto span = tracks.span(TrackKind::kCompute, 0);
      queue->give(1e-6);
    }
    queue->perform();
    tracks.settle();
    const double seen = now_seconds();
    const std::vector<TrackEvent> events = trace.take();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_GE(events[0].begin_seconds, enqueued - 1e-6);
    EXPECT_LE(events[0].end_seconds, seen);
  }
}

}  // namespace
}  // namespace strata
