// Tests what the other ranks do when a process or a rank fails.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "strata/base/errors.h"
#include "strata/comm/collectives.h"
#include "strata/comm/group.h"
#include "strata/comm/ranks.h"
#include "tests/ranks/forked.h"

namespace strata {
namespace {

constexpr int kProcesses = 4, kRanks = 8;
const Mesh kMesh{{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}};

// Uses every kind of exchange, endlessly.
void work_for_ever(Group& world) {
  MeshGroups groups = make_mesh_groups(world, kMesh);
  at::Tensor large = at::full({200000}, 1.0), small = at::full({10}, 1.0);
  for (int round = 0;; ++round) {
    large.fill_(1.0);
    all_reduce_sum(world, large);
    all_reduce_sum(groups[Axis::kTensor], small.fill_(1.0));
    groups[Axis::kPipeline].send(1 - groups[Axis::kPipeline].rank(), {.micro_batch = round},
                                 at::full({20000}, round));
    groups[Axis::kPipeline].receive(1 - groups[Axis::kPipeline].rank(), {.micro_batch = round});
    groups[Axis::kData].barrier();
  }
}

TEST(LostProcess, EndsAllOthersAndIsNamed) {
  const int seed = static_cast<int>(std::random_device{}());
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const int victim = static_cast<int>(random() % kProcesses);
    Forked forked(kProcesses, [&](const ForkedProcess& self) {
      ::setenv("STRATA_SOCKETS", round % 2 ? "1" : "0", 1);
      World world({.ranks = kRanks, .mesh = kMesh});
      self.ready();
      world.run([](Group& group, MemoryAccount&) { work_for_ever(group); });
    });
    ASSERT_NO_FATAL_FAILURE(forked.await_ready());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    forked.send_signal(victim, SIGKILL);
    const std::vector<Outcome> outcomes = forked.wait();
    for (int process = 0; process < kProcesses; ++process) {
      if (process == victim) continue;
      EXPECT_EQ(outcomes[process].exit_code, 3)
          << "process " << process << " of victim " << victim << ", signal "
          << outcomes[process].signal << ": " << outcomes[process].text;
      for (const int rank : {2 * victim, 2 * victim + 1})
        EXPECT_NE(outcomes[process].text.find(kMesh.name(rank)), std::string::npos)
            << outcomes[process].text;
      EXPECT_NE(outcomes[process].text.find(": lost"), std::string::npos);
      EXPECT_EQ(outcomes[process].text, outcomes[(victim + 1) % kProcesses].text);
    }
  }
}

TEST(FailedRank, EndsAllProcessesWithSameError) {
  for (int failing = 0; failing < kRanks; failing += 3) {
    Forked forked(kProcesses, [&](const ForkedProcess&) {
      run_ranks({.ranks = kRanks, .mesh = kMesh}, [&](Group& group, MemoryAccount&) {
        if (group.rank() != failing) work_for_ever(group);
        throw UserError({.operation = "test.fail",
                         .where = "recipe.yaml:3:9",
                         .what = "on purpose",
                         .fix = "none"});
      });
    });
    for (const Outcome& outcome : forked.wait()) {
      EXPECT_EQ(outcome.exit_code, 2);
      EXPECT_EQ(outcome.text, "[test.fail] " + kMesh.name(failing) +
                                  ", recipe.yaml:3:9: on purpose\n  fix       none");
    }
  }
}

TEST(FailedRank, TwoConcurrentFailuresEndWithOneError) {
  Forked forked(2, [](const ForkedProcess&) {
    run_ranks({.ranks = 2}, [](Group& group, MemoryAccount&) {
      group.barrier();
      throw SystemError({.operation = "test.fail", .what = "each its own"});
    });
  });
  for (const Outcome& outcome : forked.wait()) {
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_EQ(outcome.text, "[test.fail] rank 0: each its own");
  }
}

TEST(FailedRank, ReportsBudgetExceededByMessage) {
  Forked forked(2, [](const ForkedProcess&) {
    run_ranks({.ranks = 2, .device_bytes = 1 << 20}, [](Group& group, MemoryAccount&) {
      std::vector<at::Tensor> received;
      for (int i = 0; i < 3; ++i) {
        if (group.rank() == 0) group.send(1, {.value = i}, at::empty({100000}));
        if (group.rank() == 1) received.push_back(group.receive(0, {.value = i}));
        group.barrier();
      }
    });
  });
  for (const Outcome& outcome : forked.wait()) {
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_NE(outcome.text.find("rank 1"), std::string::npos) << outcome.text;
  }
}

TEST(FailedDecision, EndsAllProcesses) {
  Forked forked(3, [](const ForkedProcess&) {
    World world({.ranks = 3});
    world.agree([]() -> std::string {
      throw UserError({.operation = "test.plan", .what = "does not fit"});
    });
  });
  for (const Outcome& outcome : forked.wait()) {
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.text, "[test.plan] does not fit");
  }
}

TEST(FailedDecision, IsDetectedBeforeRanksStart) {
  Forked forked(2, [](const ForkedProcess& self) {
    World world({.ranks = 2});
    if (self.process() == 1) throw UserError({.operation = "test.disk", .what = "full"});
    world.run([](Group& group, MemoryAccount&) { group.barrier(); });
  });
  const std::vector<Outcome> outcomes = forked.wait();
  EXPECT_EQ(outcomes[0].exit_code, 3);
  EXPECT_NE(outcomes[0].text.find("process 1: left"), std::string::npos) << outcomes[0].text;
  EXPECT_EQ(outcomes[1].exit_code, 2);
}

}  // namespace
}  // namespace strata
