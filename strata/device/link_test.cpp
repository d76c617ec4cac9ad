#include "strata/device/link.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "strata/base/measurement.h"

namespace strata {
namespace {

constexpr double kCopySeconds = 1e-3;
constexpr int kNumel = 1000;
const LinkOptions kSlow{.bytes_per_second = 4 * kNumel / kCopySeconds};

// On a busy machine threads wake up late; a bus with waiting copies must still never be idle.
TEST(Link, IsNeverIdleWhileCopiesAreWaiting) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i)
    others.emplace_back([&] {
      while (!stop) {
      }
    });
  constexpr int kCopies = 100;
  TrackTrace trace;
  const at::Tensor from = at::full({kNumel}, 3.0f);
  std::vector<at::Tensor> to;
  const double begin = now_seconds();
  {
    // The submitting thread may be delayed, too: no copy begins before all are submitted.
    const Promise gate;
    const Completion opened = gate.completion();
    Link link(kSlow, &trace);
    Completion last;
    for (int i = 0; i < kCopies; ++i) {
      to.push_back(at::full({kNumel}, 0.0f));
      last = link.to_device(to.back(), from,
                            i == 0 ? std::vector{opened} : std::vector<Completion>{}, i);
    }
    gate.complete();
    last.wait();
    EXPECT_EQ(link.bytes_to_device(), kCopies * 4 * kNumel);
  }
  EXPECT_GE(now_seconds() - begin, kCopies * kCopySeconds);
  stop = true;
  for (std::thread& other : others) other.join();
  const std::vector<TrackEvent> events = trace.take();
  ASSERT_EQ(events.size(), kCopies);
  for (int i = 0; i < kCopies; ++i) {
    EXPECT_TRUE(to[i].equal(from));
    EXPECT_EQ(events[i].layer, i);
    EXPECT_GE(events[i].end_seconds - events[i].begin_seconds, 0.999 * kCopySeconds);
    if (i > 0) EXPECT_EQ(events[i].begin_seconds, events[i - 1].end_seconds);
  }
}

// A copy that waits for an event, or follows a pause, takes its full time from its actual start.
TEST(Link, CountsCopyTimeFromPossibleStart) {
  TrackTrace trace;
  Link link(kSlow, &trace);
  const at::Tensor from = at::full({kNumel}, 3.0f), to = at::full({kNumel}, 0.0f);
  link.to_device(to, from).wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  double begin = now_seconds();
  link.to_device(to, from).wait();
  EXPECT_GE(now_seconds() - begin, kCopySeconds);
  const Promise gate;
  const Completion copied = link.to_host(to, from, {gate.completion()});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(copied.ready());
  begin = now_seconds();
  gate.complete();
  copied.wait();
  EXPECT_GE(now_seconds() - begin, kCopySeconds);
}

TEST(Link, CopiesEveryByteBothWays) {
  Link link;
  const at::Tensor host = at::rand({12345}), device = at::zeros_like(host);
  link.to_device(device, host).wait();
  EXPECT_TRUE(at::equal(device, host));
  const at::Tensor back = at::zeros_like(host);
  link.to_host(back, device).wait();
  EXPECT_TRUE(at::equal(back, host));
  EXPECT_EQ(link.bytes_to_device(), 4 * 12345);
  EXPECT_EQ(link.bytes_to_host(), 4 * 12345);
}

constexpr double kRounding = 1e-9;  // of differences of the clock

TEST(Link, RecordsLayerAndTimeBeforeCopyEnds) {
  TrackTrace trace;
  Link link({.bytes_per_second = 4e6, .latency_seconds = 0.002}, &trace);
  const at::Tensor host = at::rand({2000}), device = at::zeros_like(host);  // 2 ms
  const double begin = now_seconds();
  link.to_device(device, host, {}, 7);
  link.to_device(device, host, {}, 8).wait();
  std::vector<TrackEvent> events = trace.take();
  const double end = now_seconds();
  ASSERT_EQ(events.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(events[i].track, TrackKind::kToDevice);
    EXPECT_EQ(events[i].layer, 7 + i);
    EXPECT_GE(events[i].end_seconds, events[i].begin_seconds + 0.004 - kRounding);
  }
  EXPECT_GE(events[0].begin_seconds, begin);
  EXPECT_GE(events[1].begin_seconds, events[0].end_seconds);
  EXPECT_LE(events[1].end_seconds, end);
  link.to_host(host, device, {}, 3).wait();
  events = trace.take();
  ASSERT_EQ(events.size(), 1u);  // events taken before are gone
  EXPECT_EQ(events[0].track, TrackKind::kToHost);
  EXPECT_EQ(events[0].layer, 3);
}

// The lower bound holds even on a busy machine; the upper bound must hold in one of the rounds.
TEST(Link, CopiesAtBusRateInBothDirectionsAtOnce) {
  Link link({.bytes_per_second = 20e6, .latency_seconds = 0.01});
  const at::Tensor host = at::rand({100000}), device = at::zeros_like(host);  // 20 ms
  const at::Tensor other = at::zeros_like(host), more = at::zeros_like(host);
  constexpr double kMost = 0.17;  // one direction after the other would take 0.18
  double least = 1;
  for (int round = 0; round < 20 && least >= kMost; ++round) {
    const double begin = now_seconds();
    Completion in, out;
    for (int i = 0; i < 3; ++i) {
      in = link.to_device(device, host);
      out = link.to_host(more, other);
    }
    in.wait();
    out.wait();
    const double seconds = now_seconds() - begin;
    EXPECT_GE(seconds, 0.09);
    least = std::min(least, seconds);
  }
  EXPECT_LT(least, kMost);
}

}  // namespace
}  // namespace strata
