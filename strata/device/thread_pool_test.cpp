#include "strata/device/thread_pool.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <vector>

#include "strata/device/account.h"
#include "strata/device/parallel.h"

namespace strata {
namespace {

TEST(ThreadPool, RunsEveryPieceOnceWithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 500; ++round) {
      std::vector<std::atomic<int>> count(round % 23);
      pool.run(round % 23, [&](std::int64_t piece) { ++count[piece]; });
      for (const std::atomic<int>& c : count) EXPECT_EQ(c, 1);
    }
  }
}

// A slow piece delays one thread, not the pieces that others can do.
TEST(ThreadPool, FreeThreadsRunPiecesOfSlowThread) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  std::thread::id slow;
  std::vector<std::thread::id> by(9);
  pool.run(9, [&](std::int64_t piece) {
    by[piece] = std::this_thread::get_id();
    if (piece == 0) {
      slow = by[0];
      while (done < 8) std::this_thread::yield();
    } else {
      ++done;
    }
  });
  for (int piece = 1; piece < 9; ++piece) EXPECT_NE(by[piece], slow);
}

// The pool sees a delayed thread by the time that others wait at the end of a job.
TEST(ThreadPool, ReportsImbalanceWhenThreadIsDelayed) {
  ThreadPool pool(2);
  EXPECT_TRUE(pool.balanced());
  const auto caller = std::this_thread::get_id();
  const auto run = [&](int milliseconds_of_worker) {
    for (int job = 0; job < 60; ++job) {
      std::atomic<int> begun{0};
      pool.run(2, [&](std::int64_t) {
        ++begun;
        while (begun < 2) std::this_thread::yield();  // a piece each
        const bool worker = std::this_thread::get_id() != caller;
        std::this_thread::sleep_for(std::chrono::milliseconds(worker ? milliseconds_of_worker : 1));
      });
    }
  };
  run(4);
  EXPECT_FALSE(pool.balanced());
  for (int i = 0; i < 50 && !pool.balanced(); ++i) run(0);  // other programs delay it, too
  EXPECT_TRUE(pool.balanced());
}

TEST(ThreadPool, ThrowsErrorOfPieceWhenAllHaveEnded) {
  ThreadPool pool(3);
  std::atomic<int> ran{0};
  const auto failing = [&](std::int64_t piece) {
    ++ran;
    if (piece == 4) throw std::runtime_error("piece 4");
  };
  EXPECT_THROW(pool.run(16, failing), std::runtime_error);
  EXPECT_EQ(ran, 16);
  pool.run(16, [&](std::int64_t) { ++ran; });  // the pool still works
  EXPECT_EQ(ran, 32);
}

TEST(ThreadPool, ChargesTheCallersAccountAndKeepsGradModeOff) {
  install_accounting_allocator();
  MemoryAccount account("rank 0");
  ThreadPool pool(4);
  std::vector<at::Tensor> made(64);
  std::atomic<int> with_grad{0};
  {
    const AccountScope scope(account);
    pool.run(64, [&](std::int64_t piece) {
      made[piece] = at::empty({256});
      if (at::GradMode::is_enabled()) ++with_grad;
    });
  }
  EXPECT_EQ(account.current_bytes(), 64 * 1024);
  EXPECT_EQ(with_grad, 0);
  EXPECT_TRUE(at::GradMode::is_enabled());
  made.clear();
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST(ThreadPool, NestedPiecesRunOnSameThread) {
  ThreadPool pool(2);
  const ThreadPoolScope scope(pool);
  std::atomic<int> elsewhere{0}, ran{0};
  pool.run(4, [&](std::int64_t) {
    const std::thread::id here = std::this_thread::get_id();
    thread_pool().run(8, [&](std::int64_t) {
      ++ran;
      if (std::this_thread::get_id() != here) ++elsewhere;
    });
  });
  EXPECT_EQ(ran, 32);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ThreadPool, NestedPiecesDoNotUseDefaultPool) {
  at::set_num_threads(3);
  std::atomic<int> ran{0};
  thread_pool().run(6, [&](std::int64_t) {
    EXPECT_EQ(thread_pool().threads(), 1);
    thread_pool().run(2, [&](std::int64_t) { ++ran; });
  });
  EXPECT_EQ(ran, 12);
  EXPECT_EQ(thread_pool().threads(), 3);
  at::set_num_threads(1);
}

TEST(ThreadPool, ScopeReplacesDefaultPoolOfThread) {
  at::set_num_threads(3);
  EXPECT_EQ(thread_pool().threads(), 3);  // no scope: its own pool
  {
    ThreadPool pool(2);
    const ThreadPoolScope scope(pool);
    EXPECT_EQ(&thread_pool(), &pool);
    EXPECT_EQ(at::get_num_threads(), 1);  // ATen's threads would compete with the pool
  }
  at::set_num_threads(1);
  EXPECT_EQ(thread_pool().threads(), 1);
}

TEST(Parallel, RangesCoverAllAndBeginAtMultiplesOfUnit) {
  ThreadPool pool(3);
  const ThreadPoolScope scope(pool);
  for (const std::int64_t n : {0, 1, 15, 16, 17, 5000, 100003}) {
    std::vector<std::atomic<int>> seen(n);
    parallel_ranges(
        n, 32,
        [&](std::int64_t begin, std::int64_t end) {
          EXPECT_EQ(begin % 16, 0);
          for (std::int64_t i = begin; i < end; ++i) ++seen[i];
        },
        16);
    for (const std::atomic<int>& count : seen) EXPECT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace strata
