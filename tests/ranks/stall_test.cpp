// Tests that the processes that wait for a rank without progress name it.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "strata/comm/ranks.h"
#include "tests/ranks/forked.h"

namespace strata {
namespace {

constexpr int kProcesses = 3;

void expect_named(const Outcome& outcome, const std::string& part) {
  EXPECT_EQ(outcome.exit_code, 3) << outcome.signal;
  EXPECT_NE(outcome.text.find("[comm.wait]"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find(part), std::string::npos) << outcome.text;
}

TEST(StalledRank, IsNamedWithItsAction) {
  const Mesh mesh{{Axis::kPipeline, kProcesses}};
  Forked forked(kProcesses, [&](const ForkedProcess&) {
    run_ranks({.ranks = kProcesses, .mesh = mesh, .stall_seconds = 0.5, .stall_fatal_seconds = 4},
              [](Group& group, MemoryAccount&) {
                group.report_progress(group.rank() == 2 ? "data loading" : "activation", 17, 4);
                const at::Tensor nothing = at::zeros({1});
                while (group.rank() == 2) {
                  group.before_write(nothing);  // throws when the run has failed
                  std::this_thread::sleep_for(std::chrono::milliseconds(10));
                }
                group.receive((group.rank() + 1) % kProcesses, {});
              });
  });
  for (const Outcome& outcome : forked.wait())
    expect_named(outcome, "rank 2 (pp 2/3), last seen in data loading");
}

// A debugger, or a suspended machine: after the process resumes, no rank counts as stalled.
TEST(StoppedProcess, DoesNotCountOwnSuspensionAsStall) {
  Forked forked(1, [](const ForkedProcess& self) {
    const auto begin = std::chrono::steady_clock::now();
    run_ranks({.ranks = 2, .stall_seconds = 1, .stall_fatal_seconds = 6},
              [&](Group& group, MemoryAccount&) {
                if (group.rank() == 0) group.receive(1, {});
                if (group.rank() == 0) return;
                self.ready();
                std::this_thread::sleep_until(begin + std::chrono::seconds(7));
                group.send(0, {}, at::zeros({1}));
              });
  });
  ASSERT_NO_FATAL_FAILURE(forked.await_ready());
  forked.send_signal(0, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  forked.send_signal(0, SIGCONT);
  const Outcome outcome = forked.wait()[0];
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
}

TEST(StoppedProcess, IsNamed) {
  Forked forked(kProcesses, [](const ForkedProcess& self) {
    World world({.ranks = kProcesses, .stall_seconds = 1, .stall_fatal_seconds = 6});
    self.ready();
    world.run([](Group& group, MemoryAccount&) {
      while (true) group.barrier();
    });
  });
  ASSERT_NO_FATAL_FAILURE(forked.await_ready());
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  forked.send_signal(1, SIGSTOP);
  const std::vector<Outcome> outcomes = forked.wait(60, /*hung=*/1);
  expect_named(outcomes[0], "rank 1, not heard from");
  expect_named(outcomes[2], "rank 1, not heard from");
}

}  // namespace
}  // namespace strata
