#include "strata/device/copy_stream.h"

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

// A device tensor: the copy stream does not hold it.
const at::Tensor& device_numbers() {
  static const at::Tensor there = numbers(0);
  return there;
}

TEST(CopyStreams, SubmitAtOnceAfterDeviceEvents) {
  auto queue = second_a_copy();
  TimedQueue compute;
  CopyStream copies(Stream({}, queue), TrackKind::kToDevice);
  const at::Tensor to = numbers(0);
  const Completion computed = compute.record(EventTime::kUnknown);
  const Completion copied = copies.copy(to, numbers(3), {computed});
  EXPECT_EQ(queue->copies(), 1);
  EXPECT_EQ(queue->waits(), 1);
  EXPECT_FALSE(copied.ready());
  EXPECT_NE(on_device(copied), nullptr);
  copied.wait();
  EXPECT_TRUE(to.equal(numbers(3)));
}

// The copy stream holds the host tensor of each copy; the caller holds none.
TEST(CopyStreams, HoldHostBytesUntilCopyEnds) {
  auto queue = second_a_copy();
  for (const TrackKind kind : {TrackKind::kToDevice, TrackKind::kToHost}) {
    CopyStream copies(Stream({}, queue), kind);
    at::Tensor device = numbers(0), host = numbers(1);
    const bool in = kind == TrackKind::kToDevice;
    copies.copy(in ? device : host, in ? host : device);
    EXPECT_EQ(host.use_count(), 2);
    EXPECT_EQ(device.use_count(), 1);
    queue->perform();
    copies.copy(in ? device_numbers() : numbers(0), in ? numbers(1) : device_numbers());
    EXPECT_EQ(host.use_count(), 1);
  }
}

TEST(CopyStreams, WaitForHostWorkWithoutBlockingCaller) {
  auto queue = second_a_copy();
  const at::Tensor first = numbers(0), second = numbers(0), source = numbers(1);
  CopyStream copies(Stream({}, queue), TrackKind::kToDevice);
  Executor host({.name = "host"});
  std::promise<void> gate;
  const Completion updated = host.submit([&] { gate.get_future().wait(); });
  const Completion copied = copies.copy(first, source, {updated});
  // The copy that is submitted next keeps its place.
  const Completion later = copies.copy(second, source);
  EXPECT_EQ(queue->copies(), 0);
  EXPECT_FALSE(copied.ready());
  EXPECT_FALSE(later.ready());
  gate.set_value();
  EXPECT_NE(on_device(later), nullptr);  // waits until the copy is submitted
  EXPECT_EQ(queue->copies(), 2);
  EXPECT_FALSE(copied.ready());
  queue->perform();
  EXPECT_TRUE(copied.ready());
  EXPECT_TRUE(later.ready());
  EXPECT_TRUE(second.equal(numbers(1)));
  // No wait is left, so copies are submitted at once again.
  copies.copy(first, source);
  EXPECT_EQ(queue->copies(), 3);
}

TEST(CopyStreams, ThrowErrorOfPrecedingEvent) {
  auto queue = second_a_copy();
  CopyStream copies(Stream({}, queue), TrackKind::kToDevice);
  Executor host({.name = "host"});
  std::promise<void> gate;
  const Completion failing = host.submit([&] {
    gate.get_future().wait();
    throw std::runtime_error("no row");
  });
  const Completion copied = copies.copy(numbers(0), numbers(1), {failing});
  gate.set_value();
  EXPECT_THROW(copied.wait(), std::runtime_error);
  EXPECT_THROW(on_device(copied), std::runtime_error);
  EXPECT_EQ(queue->copies(), 0);
  EXPECT_THROW(copies.copy(numbers(0), numbers(1), {failing}), std::runtime_error);
}

TEST(CopyStreams, RecordDeviceTimesOnHostClock) {
  auto queue = second_a_copy();
  TrackTrace trace;
  const double before = now_seconds();
  CopyStream copies(Stream({}, queue), TrackKind::kToHost, &trace);
  const double after = now_seconds();
  for (int layer = 0; layer < 3; ++layer) copies.copy(numbers(0), device_numbers(), {}, layer);
  EXPECT_TRUE(trace.take().empty());
  queue->perform();
  copies.copy(numbers(0), device_numbers(), {}, 3);
  const std::vector<TrackEvent> events = trace.take();
  ASSERT_EQ(events.size(), 3);
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(events[layer].track, TrackKind::kToHost);
    EXPECT_EQ(events[layer].layer, layer);
    EXPECT_NEAR(events[layer].end_seconds - events[layer].begin_seconds, 1, 1e-9);
    EXPECT_GE(events[layer].begin_seconds, before + layer);
    EXPECT_LE(events[layer].begin_seconds, after + layer);
  }
}

TEST(CopyStreams, FinishCopiesBeforeDestruction) {
  auto queue = second_a_copy();
  TrackTrace trace;
  const at::Tensor to = numbers(0);
  {
    CopyStream copies(Stream({}, queue), TrackKind::kToDevice, &trace);
    copies.copy(to, numbers(5), {}, 7);
  }
  EXPECT_TRUE(to.equal(numbers(5)));
  EXPECT_EQ(trace.take().size(), 1);
}

// Recorded copies run at replay: they have no time, and the stream neither queries their events nor
// holds their tensors.
TEST(CopyStreams, AreRecordedWithTheComputeStream) {
  auto queue = second_a_copy();
  TrackTrace trace;
  CopyStream copies(Stream({}, queue), TrackKind::kToDevice, &trace, Stream({}, queue));
  const at::Tensor before = numbers(2), recorded = numbers(3), later = numbers(4);
  copies.copy(device_numbers(), before, {}, 2);
  queue->record_from_now_on(true);
  const at::Tensor to = numbers(0);
  const Completion earlier = queue->record(EventTime::kUnknown);
  copies.copy(to, recorded, {earlier}, 3);
  EXPECT_EQ(queue->copies(), 2);
  EXPECT_EQ(recorded.use_count(), 1);
  EXPECT_EQ(before.use_count(), 2);  // released later, by settle()
  queue->record_from_now_on(false);
  queue->perform();
  EXPECT_TRUE(to.equal(numbers(3)));
  copies.copy(device_numbers(), later, {}, 4);
  EXPECT_EQ(before.use_count(), 1);
  const std::vector<TrackEvent> events = trace.take();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].layer, 2);
}

// A copy that another thread submits while the rank records other work runs at once, and its tensor
// is held as usual.
TEST(CopyStreams, RunUnrecordedWhenExecutorSubmits) {
  auto queue = second_a_copy();
  auto compute = second_a_copy();
  CopyStream copies(Stream({}, queue), TrackKind::kToDevice, nullptr, Stream({}, compute));
  Executor host({.name = "host"});
  std::promise<void> gate;
  const Completion updated = host.submit([&] { gate.get_future().wait(); });
  const at::Tensor to = numbers(0), from = numbers(6);
  const Completion copied = copies.copy(to, from, {updated});
  compute->record_from_now_on(true);
  gate.set_value();
  EXPECT_NE(on_device(copied), nullptr);  // it is submitted
  compute->record_from_now_on(false);
  // After a second copy, the executor's task, which also held the tensor, is gone.
  copies.copy(device_numbers(), numbers(1));
  EXPECT_EQ(from.use_count(), 2);
  queue->perform();
  EXPECT_TRUE(to.equal(numbers(6)));
  copies.copy(device_numbers(), numbers(1));
  EXPECT_EQ(from.use_count(), 1);
}

}  // namespace
}  // namespace strata
