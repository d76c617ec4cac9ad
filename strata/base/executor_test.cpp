#include "strata/base/executor.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/processor_time.h"

namespace strata {
namespace {

TEST(Executor, RunsAllTasksInOrderBeforeDestruction) {
  std::vector<int> order;
  Completion last;
  {
    Executor executor({.name = "test"});
    for (int i = 0; i < 100; ++i) last = executor.submit([&order, i] { order.push_back(i); });
  }
  EXPECT_TRUE(last.ready());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(Executor, StartsTaskWhenPrecedingWorkHasEnded) {
  const Promise gate;
  Executor first({.name = "first"}), second({.name = "second"});
  std::atomic<bool> passed{false}, seen{false};
  const Completion opened = first.submit([&] { passed = true; }, {gate.completion()});
  const Completion done = second.submit([&] { seen = passed.load(); }, {opened});
  EXPECT_FALSE(done.ready());
  gate.complete();
  done.wait();
  EXPECT_TRUE(seen);
}

TEST(Executor, FailsDependentTaskAndRunsNextTask) {
  Executor first({.name = "first"}), second({.name = "second"});
  bool ran = false;
  const Completion failed = first.submit([] { throw std::runtime_error("no copy"); });
  const Completion after = second.submit([&] { ran = true; }, {failed});
  const Completion other = first.submit([] {});
  EXPECT_THROW(failed.wait(), std::runtime_error);
  EXPECT_THROW(after.wait(), std::runtime_error);
  EXPECT_THROW(failed.wait(), std::runtime_error);  // to each caller, not only the first
  EXPECT_NO_THROW(other.wait());
  EXPECT_FALSE(ran);
}

TEST(Executor, FailsAllLaterTasksWithFailRest) {
  Executor executor({.name = "test", .after_failure = AfterFailure::kFailRest});
  int ran = 0;
  const Promise gate;
  executor.submit([&] { ++ran; }).wait();
  const Completion failed =
      executor.submit([] { throw std::runtime_error("first"); }, {gate.completion()});
  const Completion queued = executor.submit([&] { throw std::logic_error("second"); });
  gate.complete();
  EXPECT_THROW(failed.wait(), std::runtime_error);
  EXPECT_THROW(queued.wait(), std::runtime_error);
  EXPECT_THROW(executor.submit([&] { ++ran; }).wait(), std::runtime_error);
  EXPECT_EQ(ran, 1);
}

TEST(Executor, ReleasesTaskBeforeCompletionEnds) {
  std::atomic<bool> released{false};
  Executor executor({.name = "test"});
  std::shared_ptr<int> held(new int(0), [&released](const int* number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    delete number;
    released = true;
  });
  const Completion done = executor.submit([held] { (void)held; });
  held.reset();
  done.wait();
  EXPECT_TRUE(released);
}

TEST(Executor, RunsContinuationBeforeNextTask) {
  Executor executor({.name = "test"});
  const Promise gate;
  int after = 0, seen = -1;
  const Completion first = executor.submit([] {}, {gate.completion()});
  first.then([&](const std::exception_ptr&) { after = 1; });
  const Completion second = executor.submit([&] { seen = after; });
  gate.complete();
  second.wait();
  EXPECT_EQ(seen, 1);
}

TEST(Executor, PreparesAndNamesThreadBeforeFirstTask) {
  thread_local int prepared = 0;
  std::string name(16, '\0');
  int seen = 0;
  Executor executor({.name = "a name of many letters", .prepare_thread = [] { prepared = 7; }});
  executor
      .submit([&] {
        pthread_getname_np(pthread_self(), name.data(), name.size());
        seen = prepared;
      })
      .wait();
  EXPECT_EQ(std::string(name.c_str()), "a name of many ");
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(prepared, 0);
}

TEST(Executor, CountsTheProcessorTimeOfEndedTasksOnce) {
  Executor executor({.name = "test"});
  executor
      .submit([] {
        const double began = thread_cpu_seconds();
        while (thread_cpu_seconds() < began + 0.01) {
        }
      })
      .wait();
  EXPECT_GE(executor.take_processor_seconds(), 0.01);
  EXPECT_EQ(executor.take_processor_seconds(), 0);
}

TEST(Executor, AcceptsTasksFromManyThreads) {
  std::atomic<int> ran{0};
  {
    Executor executor({.name = "test"});
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([&] {
        Completion last;
        for (int i = 0; i < 50; ++i) last = executor.submit([&] { ++ran; }, {last});
        last.wait();
      });
  }
  EXPECT_EQ(ran, 200);
}

}  // namespace
}  // namespace strata
