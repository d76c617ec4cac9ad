#include "strata/device/lane.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "strata/base/measurement.h"
#include "strata/device/link.h"

namespace strata {
namespace {

TEST(Lane, PerformsTasksInTheirOrder) {
  std::vector<int> order;
  Event last;
  {
    Lane lane;
    for (int i = 0; i < 100; ++i) last = lane.submit([&order, i] { order.push_back(i); });
  }  // waits
  EXPECT_TRUE(last.query());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(Lane, ATaskBeginsWhenWhatItComesAfterHasHappened) {
  std::promise<void> gate;
  Lane first, second;
  std::atomic<bool> passed{false}, seen{false};
  const Event opened = first.submit([&] {
    gate.get_future().wait();
    passed = true;
  });
  const Event done = second.submit([&] { seen = passed.load(); }, {opened});
  EXPECT_FALSE(done.query());
  gate.set_value();
  done.synchronize();
  EXPECT_TRUE(seen);
}

TEST(Lane, AFailureReachesEveryoneWhoWaitsForItAndNobodyElse) {
  Lane first, second;
  bool ran = false;
  const Event failed = first.submit([] { throw std::runtime_error("no copy"); });
  const Event behind = second.submit([&] { ran = true; }, {failed});
  const Event other = first.submit([] {});
  EXPECT_THROW(failed.synchronize(), std::runtime_error);
  EXPECT_THROW(behind.synchronize(), std::runtime_error);
  EXPECT_THROW(failed.synchronize(), std::runtime_error);  // to each
  EXPECT_NO_THROW(other.synchronize());
  EXPECT_FALSE(ran);
}

TEST(Lane, WhatATaskHeldIsGivenBackWhenItsEventHasHappened) {
  std::atomic<bool> gone{false};
  Lane lane;
  std::shared_ptr<int> held(new int(0), [&gone](const int* number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    delete number;
    gone = true;
  });
  Event done = lane.submit([held] { (void)held; });
  held.reset();
  done.synchronize();
  EXPECT_TRUE(gone);
}

TEST(Link, CopiesEveryByteBothWays) {
  Link link;
  const at::Tensor host = at::rand({12345}), device = at::zeros_like(host);
  link.to_device(device, host).synchronize();
  EXPECT_TRUE(at::equal(device, host));
  const at::Tensor back = at::zeros_like(host);
  link.to_host(back, device).synchronize();
  EXPECT_TRUE(at::equal(back, host));
  EXPECT_EQ(link.bytes_to_device(), 4 * 12345);
  EXPECT_EQ(link.bytes_to_host(), 4 * 12345);
}

constexpr double kRounding = 1e-9;  // of differences of the clock

TEST(Link, WritesDownWhatItDidForEachLayerByTheTimeItHasHappened) {
  LaneTrace trace;
  Link link({.bytes_per_second = 4e6, .latency_seconds = 0.002}, &trace);
  const at::Tensor host = at::rand({2000}), device = at::zeros_like(host);  // 2 ms
  const double begin = now_seconds();
  link.to_device(device, host, {}, 7);
  link.to_device(device, host, {}, 8).synchronize();
  std::vector<LaneEvent> events = trace.take();
  const double end = now_seconds();
  ASSERT_EQ(events.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(events[i].lane, LaneKind::kToDevice);
    EXPECT_EQ(events[i].layer, 7 + i);
    EXPECT_GE(events[i].end_seconds, events[i].begin_seconds + 0.004 - kRounding);
  }
  EXPECT_GE(events[0].begin_seconds, begin);
  EXPECT_GE(events[1].begin_seconds, events[0].end_seconds);
  EXPECT_LE(events[1].end_seconds, end);
  link.to_host(host, device, {}, 3).synchronize();
  events = trace.take();
  ASSERT_EQ(events.size(), 1u);  // what was taken is gone
  EXPECT_EQ(events[0].lane, LaneKind::kToHost);
  EXPECT_EQ(events[0].layer, 3);
}

TEST(LaneTrace, ForgetsTheOldestWhereNobodyTakesThem) {
  LaneTrace trace;
  constexpr int kAll = 100000;
  for (int i = 0; i < kAll; ++i) trace.add({LaneKind::kUpdate, i, 0, 1});
  const std::vector<LaneEvent> events = trace.take();
  EXPECT_LT(events.size(), 70000u);
  EXPECT_GT(events.size(), 30000u);
  EXPECT_EQ(events.back().layer, kAll - 1);
}

// The lower bound holds on a busy machine, too; the upper one, now and then.
TEST(Link, TakesTheTimeOfABusAndBothDirectionsAtOnce) {
  Link link({.bytes_per_second = 20e6, .latency_seconds = 0.01});
  const at::Tensor host = at::rand({100000}), device = at::zeros_like(host);  // 20 ms
  const at::Tensor other = at::zeros_like(host), more = at::zeros_like(host);
  constexpr double kMost = 0.17;  // one direction behind the other would take 0.18
  double least = 1;
  for (int round = 0; round < 20 && least >= kMost; ++round) {
    const double begin = now_seconds();
    Event in, out;
    for (int i = 0; i < 3; ++i) {
      in = link.to_device(device, host);
      out = link.to_host(more, other);
    }
    in.synchronize();
    out.synchronize();
    const double seconds = now_seconds() - begin;
    EXPECT_GE(seconds, 0.09);
    least = std::min(least, seconds);
  }
  EXPECT_LT(least, kMost);
}

}  // namespace
}  // namespace strata
