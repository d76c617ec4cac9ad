#include "strata/device/link.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "strata/base/measurement.h"

namespace strata {
namespace {

constexpr double kCopySeconds = 1e-3;
constexpr int kNumel = 1000;
const LinkOptions kSlow{.bytes_per_second = 4 * kNumel / kCopySeconds};

// However late a thread wakes up on a machine that has other work, a bus that always had a copy to go on
// with was never idle.
TEST(Link, IsNeverIdleWhileCopiesAreWaiting) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i)
    others.emplace_back([&] {
      while (!stop) {
      }
    });
  constexpr int kCopies = 100;
  LaneTrace trace;
  const at::Tensor from = at::full({kNumel}, 3.0f);
  std::vector<at::Tensor> to;
  const double begin = now_seconds();
  {
    // Who submits may be held up, too: no copy begins before all are waiting.
    std::promise<void> gate;
    Lane lane;
    const Event opened = lane.submit([&] { gate.get_future().wait(); });
    Link link(kSlow, &trace);
    Event last;
    for (int i = 0; i < kCopies; ++i) {
      to.push_back(at::full({kNumel}, 0.0f));
      last =
          link.to_device(to.back(), from, i == 0 ? std::vector{opened} : std::vector<Event>{}, i);
    }
    gate.set_value();
    last.synchronize();
    EXPECT_EQ(link.bytes_to_device(), kCopies * 4 * kNumel);
  }
  EXPECT_GE(now_seconds() - begin, kCopies * kCopySeconds);
  stop = true;
  for (std::thread& other : others) other.join();
  const std::vector<LaneEvent> events = trace.take();
  ASSERT_EQ(events.size(), kCopies);
  for (int i = 0; i < kCopies; ++i) {
    EXPECT_TRUE(to[i].equal(from));
    EXPECT_EQ(events[i].layer, i);
    EXPECT_GE(events[i].end_seconds - events[i].begin_seconds, 0.999 * kCopySeconds);
    if (i > 0) EXPECT_EQ(events[i].begin_seconds, events[i - 1].end_seconds);
  }
}

// A copy that waits for something, or comes after a pause, takes its whole time from then on.
TEST(Link, TakesNoTimeFromBeforeACopyCouldBegin) {
  LaneTrace trace;
  Link link(kSlow, &trace);
  const at::Tensor from = at::full({kNumel}, 3.0f), to = at::full({kNumel}, 0.0f);
  link.to_device(to, from).synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  double begin = now_seconds();
  link.to_device(to, from).synchronize();
  EXPECT_GE(now_seconds() - begin, kCopySeconds);
  std::promise<void> gate;
  Lane lane;
  const Event opened = lane.submit([&] { gate.get_future().wait(); });
  const Event copied = link.to_host(to, from, {opened});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(copied.query());
  begin = now_seconds();
  gate.set_value();
  copied.synchronize();
  EXPECT_GE(now_seconds() - begin, kCopySeconds);
}

}  // namespace
}  // namespace strata
