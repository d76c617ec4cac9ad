// Tests the same messages over UCX, with its TCP and its shared memory; skipped without UCX.
#include "strata/transport/transport.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "strata/base/errors.h"
#include "strata/comm/collectives.h"
#include "strata/comm/ranks.h"
#include "tests/ranks/forked.h"

namespace strata {
namespace {

constexpr int kProcesses = 3, kRanks = 6;

#define SKIP_WITHOUT_UCX() \
  if (missing_ucx()) GTEST_SKIP() << missing_ucx()->reason

enum class Over { kTcp, kSharedMemory };

void choose(Over over, bool same_host_reads) {
  ::setenv("STRATA_SOCKETS", same_host_reads ? "0" : "1", 1);
  if (over == Over::kTcp) {
    ::setenv("UCX_TLS", "tcp", 1);
  } else {
    // Otherwise UCX disables shared memory if it has to report lost peers.
    ::setenv("UCX_TLS", "posix,cma", 1);
    ::setenv("UCX_POSIX_ERROR_HANDLING", "y", 1);
  }
}

RanksOptions options() { return {.ranks = kRanks, .transport = TransportKind::kUcx}; }

void expect_exchange(Over over, bool same_host_reads) {
  Forked forked(kProcesses, [&](const ForkedProcess&) {
    choose(over, same_host_reads);
    run_ranks(options(), [](Group& group, MemoryAccount&) {
      for (const std::int64_t numel : {1, 100, 8192, 20000, 300000, 1500000}) {
        at::Tensor x = at::full({numel}, group.rank() + 1.0);
        all_reduce_sum(group, x);
        EXPECT_TRUE(at::equal(x, at::full({numel}, 21.0))) << numel;
      }
      // Large messages overtake small ones; the last message waits for all.
      for (int peer = 0; peer < kRanks; ++peer)
        for (int i = 0; i < 12 && peer != group.rank(); ++i)
          group.send(peer, {.micro_batch = i}, at::full({i % 2 ? 50000 : 5}, group.rank() + i));
      for (int peer = 0; peer < kRanks; ++peer)
        for (int i = 11; i >= 0 && peer != group.rank(); --i)
          EXPECT_TRUE(at::equal(group.receive(peer, {.micro_batch = i}),
                                at::full({i % 2 ? 50000 : 5}, peer + i)));
    });
  });
  for (const Outcome& outcome : forked.wait(120))
    EXPECT_EQ(outcome.exit_code, 0) << outcome.signal << ": " << outcome.text;
}

TEST(Ucx, ExchangesOverTcp) {
  SKIP_WITHOUT_UCX();
  expect_exchange(Over::kTcp, false);
}

TEST(Ucx, ExchangesOverTcpWithSameHostReads) {
  SKIP_WITHOUT_UCX();
  expect_exchange(Over::kTcp, true);
}

TEST(Ucx, ExchangesOverSharedMemory) {
  SKIP_WITHOUT_UCX();
  expect_exchange(Over::kSharedMemory, false);
}

TEST(Ucx, NamesLostProcess) {
  SKIP_WITHOUT_UCX();
  Forked forked(kProcesses, [](const ForkedProcess& self) {
    choose(Over::kTcp, false);
    World world(options());
    self.ready();
    world.run([](Group& group, MemoryAccount&) {
      at::Tensor x = at::full({100000}, 1.0);
      while (true) all_reduce_sum(group, x.fill_(1.0));
    });
  });
  ASSERT_NO_FATAL_FAILURE(forked.await_ready());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  forked.send_signal(1, SIGKILL);
  const std::vector<Outcome> outcomes = forked.wait(30);
  for (const int process : {0, 2}) {
    EXPECT_EQ(outcomes[process].exit_code, 3) << outcomes[process].signal;
    EXPECT_NE(outcomes[process].text.find("rank 2, rank 3: lost"), std::string::npos)
        << outcomes[process].text;
  }
}

TEST(Ucx, EndsAllWithErrorOfOneRank) {
  SKIP_WITHOUT_UCX();
  Forked forked(kProcesses, [](const ForkedProcess&) {
    choose(Over::kTcp, false);
    run_ranks(options(), [](Group& group, MemoryAccount&) {
      at::Tensor x = at::full({100000}, 1.0);
      for (int round = 0; round < 1000000; ++round) {
        if (group.rank() == 4 && round == 20)
          throw UserError({.operation = "test.fail", .what = "on purpose"});
        all_reduce_sum(group, x.fill_(1.0));
      }
    });
  });
  for (const Outcome& outcome : forked.wait(30)) {
    EXPECT_EQ(outcome.exit_code, 2) << outcome.signal;
    EXPECT_EQ(outcome.text, "[test.fail] rank 4: on purpose");
  }
}

TEST(Ucx, IsRefusedIfMissing) {
  if (!missing_ucx()) GTEST_SKIP() << "UCX is here";
  Forked forked(2, [](const ForkedProcess&) {
    run_ranks({.ranks = 2, .transport = TransportKind::kUcx}, [](Group&, MemoryAccount&) {});
  });
  for (const Outcome& outcome : forked.wait()) {
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.text.find("apt-get install libucx"), std::string::npos) << outcome.text;
  }
}

}  // namespace
}  // namespace strata
