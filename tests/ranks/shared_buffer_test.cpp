// Tests tensors that same-host peers read in each other's memory: which process keeps them, for how
// long, and their cost. If processes may not do so, these tests check as much as applies to
// sockets.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "strata/comm/collectives.h"
#include "strata/comm/mailboxes.h"
#include "strata/comm/ranks.h"
#include "tests/ranks/forked.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kNumel = 1 << 18, kBytes = 4 * kNumel;
constexpr std::chrono::milliseconds kLate{300};

at::Tensor example() { return at::full({kNumel}, 7.0); }

void expect_example(const at::Tensor& tensor) { EXPECT_TRUE(at::equal(tensor, example())); }

TEST(SharedBuffer, KeepsBytesUntilRead) {
  expect_success(2, [](const ForkedProcess&) {
    run_ranks({.ranks = 2}, [](Group& group, MemoryAccount& account) {
      if (group.rank() == 0) group.send(1, {}, example());
      group.barrier();
      if (group.rank() == 0 && group.reads_in_place(1)) {
        EXPECT_EQ(account.current_bytes(), kBytes);
      }
      if (group.rank() == 1) {
        if (group.reads_in_place(0)) {
          EXPECT_EQ(account.current_bytes(), 0);
        }
      }
      group.barrier();  // both ranks have read
      if (group.rank() == 1) {
        const at::Tensor received = group.receive(0, {});
        EXPECT_EQ(account.current_bytes(), kBytes);
        expect_example(received);
      }
      group.barrier();
      EXPECT_EQ(account.current_bytes(), 0);
    });
  });
}

TEST(SharedBuffer, IsReadableAfterExporterEnded) {
  expect_success(2, [](const ForkedProcess& self) {
    const Clock::time_point begin = Clock::now();
    run_ranks({.ranks = 2}, [](Group& group, MemoryAccount&) {
      if (group.rank() == 0) return group.send(1, {}, example());
      const ImportedBuffer buffer = group.import_buffer(0, {});
      std::this_thread::sleep_for(kLate);
      float values[3] = {};
      buffer.read(kNumel - 3, 3, values);
      EXPECT_EQ(values[2], 7.0f);
      expect_example(buffer.tensor());
    });
    EXPECT_GE(Clock::now() - begin, kLate) << self.process();  // its process waits for the reader
  });
}

TEST(SharedBuffer, EndsWithRunIfNotReceived) {
  expect_success(2, [](const ForkedProcess&) {
    MemoryAccount* account = nullptr;
    run_ranks({.ranks = 2}, [&](Group& group, MemoryAccount& own) {
      account = &own;
      for (int i = 0; i < 3; ++i) group.send(1 - group.rank(), {.value = i}, example());
      if (group.rank() == 1) group.receive(0, {.value = 1});
    });
    EXPECT_EQ(account->current_bytes(), 0);
  });
}

TEST(SharedBuffer, KilledExporterIsError) {
  Forked forked(2, [](const ForkedProcess& self) {
    World world({.ranks = 2});
    world.run([&](Group& group, MemoryAccount&) {
      if (group.rank() == 0) group.send(1, {}, example());
      if (group.rank() == 0) group.receive(1, {});
      const ImportedBuffer buffer = group.import_buffer(0, {});
      self.ready();
      const auto read_until_it_is_gone = [&] {
        float value = 0;
        while (true) buffer.read(0, 1, &value);
      };
      if (group.reads_in_place(0)) {
        EXPECT_THROW(read_until_it_is_gone(), Cancelled);
      }
      group.barrier();
    });
  });
  ASSERT_NO_FATAL_FAILURE(forked.await_ready(1));
  forked.send_signal(0, SIGKILL);
  const Outcome outcome = forked.wait()[1];
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.text.find("rank 0: lost"), std::string::npos) << outcome.text;
}

TEST(SharedBuffer, ReductionsAllocateNothing) {
  expect_success(2, [](const ForkedProcess&) {
    run_ranks({.ranks = 2}, [](Group& group, MemoryAccount& account) {
      at::Tensor x = at::full({16 * kNumel}, group.rank() + 1.0);  // 16 MiB
      group.barrier();
      account.reset_peak();
      all_reduce_sum(group, x);
      if (group.reads_in_place(1 - group.rank())) {
        EXPECT_EQ(account.peak_bytes(), account.current_bytes());
      }
      const Shards halves = {{0, 8 * kNumel}, {8 * kNumel, 16 * kNumel}};
      const FlatRange own = halves[static_cast<std::size_t>(group.rank())];
      const at::Tensor half = x.narrow(0, own.begin, own.size());
      ReduceScatter::start(group, x, halves).finish(half);
      AllGather::start(group, half, halves, x).finish();
      if (group.reads_in_place(1 - group.rank())) {
        EXPECT_EQ(account.peak_bytes(), account.current_bytes());
      }
      EXPECT_TRUE(at::equal(x, at::full({16 * kNumel}, 6.0)));
      group.barrier();
    });
  });
}

TEST(SameHostPeers, ExcludeProcessesWithSocketsOnly) {
  expect_success(3, [](const ForkedProcess& self) {
    if (self.process() == 1) ::setenv("STRATA_SOCKETS", "1", 1);
    run_ranks({.ranks = 6}, [](Group& group, MemoryAccount&) {
      const auto process = [](int rank) { return rank / 2; };
      for (int peer = 0; peer < group.size(); ++peer) {
        const bool with_the_second = process(peer) == 1 || process(group.rank()) == 1;
        if (process(peer) == process(group.rank())) {
          EXPECT_TRUE(peer == group.rank() || group.reads_in_place(peer));
        } else if (with_the_second) {
          EXPECT_FALSE(group.reads_in_place(peer));
        }
      }
      for (const std::int64_t numel : {300000, 1100000}) {  // exported whole here, in chunks there
        at::Tensor x = at::full({numel}, group.rank() + 0.5);
        all_reduce_sum(group, x);
        EXPECT_TRUE(at::equal(x, at::full({numel}, 18.0))) << numel;
      }
    });
  });
}

}  // namespace
}  // namespace strata
