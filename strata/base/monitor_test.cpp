#include "strata/base/monitor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace strata {
namespace {

using namespace std::chrono_literals;

// The one that waits finds the state not ready, and another changes it before it waits: were that possible, nobody
// would wake it. What it looks with stands in the gap and sees whether the change gets through.
TEST(Monitor, LetsNoChangeBetweenALookAndItsWait) {
  Monitor<bool> ready;
  std::atomic<bool> changing = false, changed = false;
  std::jthread other;
  bool in_the_gap = false;
  const bool seen = ready.wait_for(10s, [&](bool is_ready) {
    if (other.joinable()) return is_ready;
    other = std::jthread([&] {
      changing = true;
      ready.change([](bool& it) { it = true; });
      changed = true;
    });
    while (!changing) std::this_thread::yield();
    for (int i = 0; i < 20 && !changed; ++i) std::this_thread::sleep_for(5ms);
    in_the_gap = changed;
    return false;
  });
  EXPECT_TRUE(seen);
  EXPECT_FALSE(in_the_gap);
}

TEST(Monitor, WakesAllWhoWaitForAnyOfItsChanges) {
  Monitor<int> count;
  {
    std::vector<std::jthread> waiting;
    for (int i = 0; i < 4; ++i)
      waiting.emplace_back(
          [&, i] { count.when([i](int now) { return now == i; }, [](int& now) { ++now; }); });
  }
  count.wait([](int now) { return now == 4; });
  EXPECT_EQ(count.look([](int now) { return now; }), 4);
}

TEST(Monitor, WakesWhenAChangeThrows) {
  Monitor<bool> failed;
  std::jthread other([&] { failed.wait([](bool it) { return it; }); });
  EXPECT_THROW(failed.change([](bool& it) {
    it = true;
    throw std::runtime_error("on purpose");
  }),
               std::runtime_error);
}

TEST(Monitor, WaitsNoLongerThanItIsTold) {
  Monitor<bool> never;
  EXPECT_FALSE(never.wait_for(1ms, [](bool it) { return it; }));
  never.change([](bool& it) { it = true; });
  EXPECT_TRUE(never.wait_for(1h, [](bool it) { return it; }));
}

}  // namespace
}  // namespace strata
