#include "strata/comm/ranks.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/rank_cases_test.h"

namespace strata {
namespace {

TEST(ThreadRanks, PassTensorsWithoutCopying) {
  const void* sent = nullptr;
  const void* received = nullptr;
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
    if (group.rank() == 0) {
      at::Tensor tensor = at::full({8}, 3.0);
      sent = tensor.data_ptr();
      group.send(1, {.value = 7}, std::move(tensor));
    } else {
      const at::Tensor tensor = group.receive(0, {.value = 7});
      received = tensor.data_ptr();
      EXPECT_EQ(tensor.sum().item<float>(), 24.0f);
    }
  });
  EXPECT_EQ(sent, received);
}

TEST(ThreadRanks, ChargeMovesWithTensor) { run_thread_ranks({.ranks = 2}, expect_charge_to_move); }

TEST(ThreadRanks, MatchMessagesByTagInAnyOrder) {
  run_thread_ranks({.ranks = 2}, [](Group& group, MemoryAccount&) {
    if (group.rank() == 0) {
      for (int i = 0; i < 10; ++i) group.send(1, {.micro_batch = i}, at::full({1}, i));
    } else {
      for (int i = 9; i >= 0; --i)
        EXPECT_EQ(group.receive(0, {.micro_batch = i}).item<float>(), static_cast<float>(i));
    }
  });
}

TEST(ThreadRanks, SumInRankOrder) {
  // (1e16 + 1) - 1e16 depends on the order; rank order gives 0 + 1e16 + 1 - 1e16 = 0.
  const double contribution[] = {1e16, 1.0, -1e16};
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    for (int round = 0; round < 50; ++round) {
      double values[] = {contribution[group.rank()], 1.0};
      group.all_reduce(values);
      EXPECT_EQ(values[0], (1e16 + 1.0) - 1e16);
      EXPECT_EQ(values[1], 3.0);
    }
  });
}

// The system can start only a few more threads; the running ranks do not wait for the missing ones.
TEST(ThreadRanks, EndIfOneCannotBeStarted) {
#ifdef STRATA_SANITIZED
  GTEST_SKIP() << "a sanitizer needs memory of its own for a thread";
#endif
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit low{static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + (64 << 20)),
                   before.rlim_max};
  ::setrlimit(RLIMIT_AS, &low);
  std::string what;
  try {
    run_thread_ranks({.ranks = 500}, [](Group& group, MemoryAccount&) { group.barrier(); });
  } catch (const SystemError& error) {
    what = error.text().what;
  }
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(what, "a thread cannot be started");
}

TEST(ThreadRanks, RunThirtyTwoRanks) {
  run_thread_ranks({.ranks = 32}, [](Group& group, MemoryAccount&) {
    const int next = (group.rank() + 1) % 32, previous = (group.rank() + 31) % 32;
    group.send(next, {}, at::full({1}, group.rank()));
    EXPECT_EQ(group.receive(previous, {}).item<float>(), static_cast<float>(previous));
    double one[] = {1.0};
    group.all_reduce(one);
    EXPECT_EQ(one[0], 32.0);
  });
}

TEST(ThreadRanks, AllStopWithFirstErrorWhenOneThrows) {
  for (int failing = 0; failing < 4; ++failing) {
    try {
      run_thread_ranks({.ranks = 4}, [&](Group& group, MemoryAccount&) {
        if (group.rank() == failing)
          throw UserError({.operation = "test.fail", .what = "on purpose"});
        if (group.rank() % 2) group.receive(failing, {});  // never sent
        group.barrier();
      });
      FAIL() << "the error was lost";
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().where, "rank " + std::to_string(failing));
      EXPECT_EQ(error.text().operation, "test.fail");
    }
  }
}

// As for a device whose work waits for another rank's while a rank unwinds.
TEST(ThreadRanks, FailureEndsOthersWaitsBeforeUnwinding) {
  std::promise<void> ended;
  bool in_time = false;
  struct AtUnwind {
    std::function<void()> work;
    ~AtUnwind() { work(); }
  };
  try {
    run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
      if (group.rank() == 1) {
        const AtUnwind say{[&] { ended.set_value(); }};
        group.receive(0, {});  // never sent
      }
      const AtUnwind wait{[&] {
        in_time =
            ended.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
      }};
      try {
        throw UserError({.operation = "test.fail", .what = "on purpose"});
      } catch (const Error& error) {
        group.fail(error);
        throw;
      }
    });
    FAIL() << "the error was lost";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "rank 0");
  }
  EXPECT_TRUE(in_time);
}

TEST(ThreadRanks, ExhaustedMemoryIsSystemError) {
  try {
    run_thread_ranks({.ranks = 2}, [](Group& group, MemoryAccount&) {
      if (group.rank() == 1) throw std::bad_alloc();
      group.barrier();
    });
    FAIL() << "the error was lost";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().where, "rank 1");
    EXPECT_EQ(error.text().what, "memory is exhausted");
  }
}

TEST(ThreadRanks, EnforceBudgetOfEachRank) {
  EXPECT_THROW(run_thread_ranks({.ranks = 2, .device_bytes = 1 << 20},
                                [](Group& group, MemoryAccount&) {
                                  if (group.rank() == 1) at::empty({1 << 20});
                                  group.barrier();
                                }),
               SystemError);
}

// The next run of the process has another budget, or none.
TEST(ThreadRanks, LeaveDeviceWithoutLimit) {
  std::vector<std::pair<int, std::int64_t>> limits;
  const auto run = [&](int ranks, const RankFunction& function) {
    limits.clear();
    run_ranks(
        {.ranks = ranks,
         .device_bytes = 1 << 20,
         .stall_seconds = 0,
         .limit_memory = [&](Device device,
                             std::int64_t bytes) { limits.emplace_back(device.index, bytes); },
         .rendezvous = Rendezvous{}},
        function);
  };
  const std::vector<std::pair<int, std::int64_t>> held{{0, 1 << 20}, {0, 0}};
  run(1, [&](Group&, MemoryAccount&) { EXPECT_EQ(limits.size(), 1u); });
  EXPECT_EQ(limits, held);
  EXPECT_THROW(run(1, [](Group&, MemoryAccount&) { throw std::bad_alloc(); }), SystemError);
  EXPECT_EQ(limits, held);
  run(2, [](Group&, MemoryAccount&) {});
  EXPECT_TRUE(limits.empty());  // they share it
}

TEST(ThreadRanks, RejectZeroRanks) {
  EXPECT_THROW(run_thread_ranks({.ranks = 0}, [](Group&, MemoryAccount&) {}), UserError);
}

TEST(ThreadRanks, EndWhenOneWaitsForever) {
  std::atomic<bool> leaves = false;
  try {
    run_ranks(
        {.ranks = 3, .stall_seconds = 0.5, .stall_fatal_seconds = 3, .rendezvous = Rendezvous{}},
        [&](Group& group, MemoryAccount&) {
          if (group.rank() == 2) return void(leaves = true);
          while (!leaves) std::this_thread::yield();
          group.report_progress("activation", 17, 4);
          if (group.rank() == 1) group.receive(2, {});  // never sent
          group.barrier();
        });
    FAIL() << "the stall was not noticed";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().operation, "comm.wait");
    EXPECT_NE(error.text().what.find("rank 2, which has ended"), std::string::npos)
        << error.text().what;
  }
}

TEST(SingleRank, IsIdentity) {
  const auto group = single_rank();
  double values[] = {2.5};
  group->all_reduce(values);
  group->barrier();
  EXPECT_EQ(values[0], 2.5);
  EXPECT_THROW(group->send(0, {}, at::empty({1})), InternalError);
}

}  // namespace
}  // namespace strata
