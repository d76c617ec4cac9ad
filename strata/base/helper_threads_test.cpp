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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::atomic<int> met = 0;
  helpers.run(2, [&](std::size_t) {
    ++begun;
    while (begun < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    met += begun;
  });
  EXPECT_EQ(met, 4);
}

TEST(HelperThreads, ReturnsWhenHelpersHaveEnded) {
  HelperThreads helpers(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> ended = 0;
  helpers.run(2, [&](std::size_t) {
    static std::atomic<int> begun = 0;
    ++begun;
    while (begun < 2) std::this_thread::yield();  // each thread has one
    if (std::this_thread::get_id() != caller)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++ended;
  });
  EXPECT_EQ(ended, 2);
}

TEST(HelperThreads, ThrowsErrorWhenAllThreadsHaveEnded) {
  HelperThreads helpers(3);
  constexpr int kMany = 10'000'000;  // seconds of iterations
  for (const std::size_t failing : {0, 1, 7}) {
    std::atomic<int> running = 0, ran = 0;
    std::atomic<bool> failed = false;
    // At most two threads wait in later iterations until the failing one has thrown.
    EXPECT_THROW(helpers.run(kMany,
                             [&](std::size_t i) {
                               ++running, ++ran;
                               while (i > failing && !failed) std::this_thread::yield();
                               --running;
                               if (i != failing) return;
                               failed = true;
                               throw std::runtime_error("fails");
                             }),
                 std::runtime_error);
    EXPECT_EQ(running, 0);
    EXPECT_LT(ran, kMany);
  }
  std::atomic<int> ran = 0;
  helpers.run(10, [&](std::size_t) { ++ran; });
  EXPECT_EQ(ran, 10);
}

TEST(HelperThreads, RunsLoopsWithinIterations) {
  HelperThreads helpers(3);
  std::atomic<int> ran = 0;
  helpers.run(6, [&](std::size_t) { helpers.run(5, [&](std::size_t) { ++ran; }); });
  EXPECT_EQ(ran, 30);
}

// The only helper is busy with another thread's loop.
TEST(HelperThreads, DoesNotWaitForBusyHelper) {
  HelperThreads helpers(2);
  std::atomic<int> inside = 0;
  std::atomic<bool> ended = false;
  std::thread other([&] {
    helpers.run(2, [&](std::size_t) {
      ++inside;
      while (!ended) std::this_thread::yield();
    });
  });
  while (inside < 2) std::this_thread::yield();
  int ran = 0;
  helpers.run(3, [&](std::size_t) { ++ran; });
  EXPECT_EQ(ran, 3);
  ended = true;
  other.join();
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
