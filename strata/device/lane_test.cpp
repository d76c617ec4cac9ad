#include "strata/device/lane.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

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

// Lower bounds hold on a busy machine, too.
TEST(Link, TakesTheTimeOfABusAndBothDirectionsAtOnce) {
  Link link({.bytes_per_second = 20e6, .latency_seconds = 0.01});
  const at::Tensor host = at::rand({100000}), device = at::zeros_like(host);  // 20 ms
  const at::Tensor other = at::zeros_like(host), more = at::zeros_like(host);
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
  EXPECT_LT(seconds, 0.17);  // one direction behind the other would take 0.18
}

}  // namespace
}  // namespace strata
