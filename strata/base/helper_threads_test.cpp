#include "strata/base/helper_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace strata {
namespace {

TEST(HelperThreads, RunsEveryIterationOnce) {
  for (const int threads : {1, 2, 5}) {
    HelperThreads helpers(threads);
    for (const std::size_t n : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> runs(n);
      helpers.run(n, [&](std::size_t i) { ++runs[i]; });
      for (const std::atomic<int>& run : runs) EXPECT_EQ(run, 1) << threads << ' ' << n;
    }
  }
}

// Each of two iterations waits for the other.
TEST(HelperThreads, RunsIterationsAtTheSameTime) {
  HelperThreads helpers(2);
  std::atomic<int> begun = 0;
  helpers.run(2, [&](std::size_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(begun, 2);
}

TEST(HelperThreads, ThrowsErrorWhenAllThreadsHaveEnded) {
  HelperThreads helpers(3);
  for (const std::size_t failing : {0, 1, 7}) {
    std::atomic<int> running = 0, ran = 0;
    EXPECT_THROW(helpers.run(200,
                             [&](std::size_t i) {
                               ++running, ++ran;
                               std::this_thread::sleep_for(std::chrono::microseconds(50));
                               --running;
                               if (i == failing) throw std::runtime_error("fails");
                             }),
                 std::runtime_error);
    EXPECT_EQ(running, 0);
    EXPECT_LT(ran, 200);
  }
  std::atomic<int> ran = 0;
  helpers.run(10, [&](std::size_t) { ++ran; });
  EXPECT_EQ(ran, 10);
}

TEST(HelperThreads, ServesSeveralLoopsAtTheSameTime) {
  HelperThreads helpers(3);
  std::vector<std::thread> callers;
  std::atomic<int> ran = 0;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) helpers.run(10, [&](std::size_t) { ++ran; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(ran, 4 * 50 * 10);
}

}  // namespace
}  // namespace strata
