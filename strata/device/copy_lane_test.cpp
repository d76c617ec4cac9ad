#include "strata/device/copy_lane.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "strata/base/measurement.h"
#include "strata/device/timed_queue_test.h"

namespace strata {
namespace {

std::shared_ptr<TimedQueue> second_a_copy() { return std::make_shared<TimedQueue>(1.0); }

at::Tensor numbers(float value) { return at::full({8}, value); }

// Of a device: the lane doesn't hold them.
const at::Tensor& device_numbers() {
  static const at::Tensor there = numbers(0);
  return there;
}

TEST(CopyLanes, GiveACopyAtOnceBehindADevicesEvents) {
  auto queue = second_a_copy();
  TimedQueue compute;
  CopyLane lane(Stream({}, queue), LaneKind::kToDevice);
  const at::Tensor to = numbers(0);
  const Event computed = compute.record(EventTime::kUnknown);
  const Event copied = lane.copy(to, numbers(3), {computed});
  EXPECT_EQ(queue->copies(), 1);
  EXPECT_EQ(queue->waits(), 1);
  EXPECT_FALSE(copied.query());
  EXPECT_NE(copied.pending()->on_device(), nullptr);
  copied.synchronize();
  EXPECT_TRUE(to.equal(numbers(3)));
}

// The lane holds what it copies from, or to, on the host, and the caller nothing.
TEST(CopyLanes, HoldHostBytesUntilTheyAreCopiedAndNoLonger) {
  auto queue = second_a_copy();
  for (const LaneKind kind : {LaneKind::kToDevice, LaneKind::kToHost}) {
    CopyLane lane(Stream({}, queue), kind);
    at::Tensor device = numbers(0), host = numbers(1);
    const bool in = kind == LaneKind::kToDevice;
    lane.copy(in ? device : host, in ? host : device);
    EXPECT_EQ(host.use_count(), 2);
    EXPECT_EQ(device.use_count(), 1);
    queue->perform();
    lane.copy(in ? device_numbers() : numbers(0), in ? numbers(1) : device_numbers());
    EXPECT_EQ(host.use_count(), 1);
  }
}

TEST(CopyLanes, WaitForWorkOfTheHostWithoutTheCaller) {
  auto queue = second_a_copy();
  const at::Tensor first = numbers(0), second = numbers(0), source = numbers(1);
  CopyLane lane(Stream({}, queue), LaneKind::kToDevice);
  Lane host;
  std::promise<void> gate;
  const Event updated = host.submit([&] { gate.get_future().wait(); });
  const Event copied = lane.copy(first, source, {updated});
  // What is submitted behind keeps its place.
  const Event behind = lane.copy(second, source);
  EXPECT_EQ(queue->copies(), 0);
  EXPECT_FALSE(copied.query());
  EXPECT_FALSE(behind.query());
  gate.set_value();
  EXPECT_NE(behind.pending()->on_device(), nullptr);  // waits until it is given
  EXPECT_EQ(queue->copies(), 2);
  EXPECT_FALSE(copied.query());
  queue->perform();
  EXPECT_TRUE(copied.query());
  EXPECT_TRUE(behind.query());
  EXPECT_TRUE(second.equal(numbers(1)));
  // Nothing is left to wait for: at once again.
  lane.copy(first, source);
  EXPECT_EQ(queue->copies(), 3);
}

TEST(CopyLanes, ThrowWhatAnEventInFrontThrew) {
  auto queue = second_a_copy();
  CopyLane lane(Stream({}, queue), LaneKind::kToDevice);
  Lane host;
  std::promise<void> gate;
  const Event failing = host.submit([&] {
    gate.get_future().wait();
    throw std::runtime_error("no row");
  });
  const Event copied = lane.copy(numbers(0), numbers(1), {failing});
  gate.set_value();
  EXPECT_THROW(copied.synchronize(), std::runtime_error);
  EXPECT_THROW(copied.pending()->on_device(), std::runtime_error);
  EXPECT_EQ(queue->copies(), 0);
  EXPECT_THROW(lane.copy(numbers(0), numbers(1), {failing}), std::runtime_error);
}

TEST(CopyLanes, WriteDownWhenTheDeviceCopiedOnTheHostsClock) {
  auto queue = second_a_copy();
  LaneTrace trace;
  const double before = now_seconds();
  CopyLane lane(Stream({}, queue), LaneKind::kToHost, &trace);
  const double after = now_seconds();
  for (int layer = 0; layer < 3; ++layer) lane.copy(numbers(0), device_numbers(), {}, layer);
  EXPECT_TRUE(trace.take().empty());
  queue->perform();
  lane.copy(numbers(0), device_numbers(), {}, 3);
  const std::vector<LaneEvent> events = trace.take();
  ASSERT_EQ(events.size(), 3);
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(events[layer].lane, LaneKind::kToHost);
    EXPECT_EQ(events[layer].layer, layer);
    EXPECT_NEAR(events[layer].end_seconds - events[layer].begin_seconds, 1, 1e-9);
    EXPECT_GE(events[layer].begin_seconds, before + layer);
    EXPECT_LE(events[layer].begin_seconds, after + layer);
  }
}

TEST(CopyLanes, AreDoneWhenTheyEnd) {
  auto queue = second_a_copy();
  LaneTrace trace;
  const at::Tensor to = numbers(0);
  {
    CopyLane lane(Stream({}, queue), LaneKind::kToDevice, &trace);
    lane.copy(to, numbers(5), {}, 7);
  }
  EXPECT_TRUE(to.equal(numbers(5)));
  EXPECT_EQ(trace.take().size(), 1);
}

// What a recording is told of happens when it is replayed: it has no time, and the lane neither asks for it nor
// holds what it copies.
TEST(CopyLanes, AreRecordedWithTheComputeStream) {
  auto queue = second_a_copy();
  LaneTrace trace;
  CopyLane lane(Stream({}, queue), LaneKind::kToDevice, &trace, Stream({}, queue));
  const at::Tensor before = numbers(2), recorded = numbers(3), behind = numbers(4);
  lane.copy(device_numbers(), before, {}, 2);
  queue->record_from_now_on(true);
  const at::Tensor to = numbers(0);
  const Event earlier = queue->record(EventTime::kUnknown);
  lane.copy(to, recorded, {earlier}, 3);
  EXPECT_EQ(queue->copies(), 2);
  EXPECT_EQ(recorded.use_count(), 1);
  EXPECT_EQ(before.use_count(), 2);  // is settled later
  queue->record_from_now_on(false);
  queue->perform();
  EXPECT_TRUE(to.equal(numbers(3)));
  lane.copy(device_numbers(), behind, {}, 4);
  EXPECT_EQ(before.use_count(), 1);
  const std::vector<LaneEvent> events = trace.take();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].layer, 2);
}

// What a thread gives while the rank records something else is done, and held as ever.
TEST(CopyLanes, AreNotRecordedWhereAThreadGivesThem) {
  auto queue = second_a_copy();
  auto compute = second_a_copy();
  CopyLane lane(Stream({}, queue), LaneKind::kToDevice, nullptr, Stream({}, compute));
  Lane host;
  std::promise<void> gate;
  const Event updated = host.submit([&] { gate.get_future().wait(); });
  const at::Tensor to = numbers(0), from = numbers(6);
  const Event copied = lane.copy(to, from, {updated});
  compute->record_from_now_on(true);
  gate.set_value();
  EXPECT_NE(copied.pending()->on_device(), nullptr);  // it is given
  compute->record_from_now_on(false);
  // Behind a second one the thread's task, which held it, too, is gone.
  lane.copy(device_numbers(), numbers(1));
  EXPECT_EQ(from.use_count(), 2);
  queue->perform();
  EXPECT_TRUE(to.equal(numbers(6)));
  lane.copy(device_numbers(), numbers(1));
  EXPECT_EQ(from.use_count(), 1);
}

}  // namespace
}  // namespace strata
