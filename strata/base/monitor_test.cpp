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

// Another thread tries to change the state after the waiter has checked it and before the waiter
// sleeps; such a change would wake no thread. The check runs in that gap and records whether the
// change succeeds.
TEST(Monitor, AllowsNoChangeBetweenCheckAndWait) {
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

TEST(Monitor, WakesAllWaitersOnEveryChange) {
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

TEST(Monitor, StopsWaitingAtTimeout) {
  Monitor<bool> never;
  EXPECT_FALSE(never.wait_for(1ms, [](bool it) { return it; }));
  never.change([](bool& it) { it = true; });
  EXPECT_TRUE(never.wait_for(1h, [](bool it) { return it; }));
}

}  // namespace
}  // namespace strata
