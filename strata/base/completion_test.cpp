#include "strata/base/completion.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

std::exception_ptr error_of(const std::string& text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

TEST(Completion, IsReadyByDefault) {
  const Completion done;
  EXPECT_TRUE(done.ready());
  done.wait();
  int calls = 0;
  done.then([&](const std::exception_ptr& error) { calls += error ? 10 : 1; });
  EXPECT_EQ(calls, 1);
}

TEST(Completion, WakesEveryWaiterWhenTheWorkEnds) {
  const Promise promise;
  std::atomic<int> woken{0};
  std::vector<std::jthread> waiters;
  for (int i = 0; i < 4; ++i)
    waiters.emplace_back([&woken, done = promise.completion()] {
      done.wait();
      ++woken;
    });
  EXPECT_FALSE(promise.completion().ready());
  EXPECT_EQ(woken, 0);
  promise.complete();
  waiters.clear();
  EXPECT_EQ(woken, 4);
  EXPECT_TRUE(promise.completion().ready());
}

TEST(Completion, ThrowsTheErrorToEveryWaiterAndEveryTime) {
  const Promise promise;
  const Completion failed = promise.completion();
  promise.fail(error_of("no copy"));
  EXPECT_TRUE(failed.ready());
  EXPECT_THROW(failed.wait(), std::runtime_error);
  EXPECT_THROW(Completion(failed).wait(), std::runtime_error);
  EXPECT_EQ(text_of(failed.error()), "no copy");
  failed.settle();
}

TEST(Completion, RunsContinuationsInOrderOnTheThreadThatEndsTheWork) {
  const Promise promise;
  std::vector<int> order;
  std::thread::id on;
  for (int i = 0; i < 3; ++i)
    promise.completion().then([&, i](const std::exception_ptr&) {
      order.push_back(i);
      on = std::this_thread::get_id();
    });
  std::thread ending([&] { promise.complete(); });
  const std::thread::id ended = ending.get_id();
  ending.join();
  EXPECT_EQ(order, (std::vector{0, 1, 2}));
  EXPECT_EQ(on, ended);
  promise.completion().then([&](const std::exception_ptr&) { on = std::this_thread::get_id(); });
  EXPECT_EQ(on, std::this_thread::get_id());
}

TEST(Completion, StartsTheNextWorkAfterTheFirstAndEndsWithIt) {
  const Promise first, second;
  bool started = false;
  const Completion both = first.completion().and_then([&] {
    started = true;
    return second.completion();
  });
  EXPECT_FALSE(started);
  first.complete();
  EXPECT_TRUE(started);
  EXPECT_FALSE(both.ready());
  second.fail(error_of("second"));
  EXPECT_EQ(text_of(both.error()), "second");
}

TEST(Completion, DoesNotStartTheNextWorkAfterAFailure) {
  const Promise first;
  bool started = false;
  const Completion both = first.completion().and_then([&] {
    started = true;
    return Completion();
  });
  first.fail(error_of("first"));
  EXPECT_EQ(text_of(both.error()), "first");
  EXPECT_FALSE(started);
  const Completion thrown =
      Completion().and_then([]() -> Completion { throw std::runtime_error("next"); });
  EXPECT_EQ(text_of(thrown.error()), "next");
}

TEST(Completion, ReleasesNextWorkBeforeCompletionEnds) {
  const Promise first;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  bool released = false;
  const Completion both = first.completion().and_then([held = std::move(held)] {
    (void)held;
    return Completion();
  });
  both.then([&](const std::exception_ptr&) { released = watched.expired(); });
  first.complete();
  EXPECT_TRUE(released);
}

TEST(Completion, AllOfEndsAfterLastPartWithFirstErrorOfList) {
  const Promise a, b, c;
  const Completion all = all_of({a.completion(), Completion(), b.completion(), c.completion()});
  c.fail(error_of("c"));
  b.fail(error_of("b"));
  EXPECT_FALSE(all.ready());
  a.complete();
  EXPECT_TRUE(all.ready());
  EXPECT_EQ(text_of(all.error()), "b");
  all_of({}).wait();
}

TEST(Completion, AllOfEndsWhenPartsEndOnManyThreads) {
  for (int round = 0; round < 50; ++round) {
    std::vector<Promise> promises(4);
    std::vector<Completion> parts;
    for (const Promise& promise : promises) parts.push_back(promise.completion());
    int sum = 0, next = 0;
    const Completion all = all_of(parts).and_then([&] {
      next = sum + 1;
      return Completion();
    });
    std::atomic<int> turn{0};
    std::vector<std::jthread> threads;
    for (const Promise& promise : promises)
      threads.emplace_back([&] {
        if (turn++ == 0) sum = 7;  // the parts order this write before the read after wait()
        promise.complete();
      });
    all.wait();
    EXPECT_EQ(next, 8);
  }
}

TEST(Completion, RefusesAContinuationWhereTheSourceCannotCallBack) {
  struct Silent final : Completion::Source {
    bool ready() const override { return true; }
    void wait() const override {}
  };
  const Completion silent(std::make_shared<Silent>());
  silent.wait();
  EXPECT_THROW(silent.then([](const std::exception_ptr&) {}), InternalError);
}

TEST(Promise, RefusesToEndTwice) {
  const Promise promise;
  promise.complete();
  EXPECT_THROW(promise.complete(), InternalError);
}

}  // namespace
}  // namespace strata
