#include "strata/plan/communicator_bytes.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr std::int64_t kChannel = std::int64_t{12} << 20;

TEST(CommunicatorBytes, AreNoneInOneProcess) {
  EXPECT_EQ(communicator_bytes({.pp = 2, .dp = 2, .tp = 2}, 0, {}), 0);
  EXPECT_EQ(communicator_bytes({}, 0, {.processes = 1, .devices = 8}), 0);
}

// 3.3 GB were seen there, some of it of rings and trees.
TEST(CommunicatorBytes, OfEightGpusOfAMachineAreNearWhatOthersSaw) {
  EXPECT_EQ(communicator_bytes({.dp = 8}, 0, {.processes = 8, .devices = 8}), 7 * 32 * kChannel);
  EXPECT_NEAR(7.0 * 32 * kChannel, 3.3e9, 0.5e9);
}

// The replicas of a stage are all ranks, and share one communicator with the norm's sum.
TEST(CommunicatorBytes, AreOfEachSetOfRanksOnce) {
  EXPECT_EQ(communicator_bytes({.dp = 16}, 0, {.processes = 2, .devices = 8}), 15 * 2 * kChannel);
  // Half of them divide states, within a process.
  EXPECT_EQ(communicator_bytes({.dp = 16}, 8, {.processes = 2, .devices = 8}), 15 * 2 * kChannel);
  // Slices and replicas are within a process each, the stages are not: only the norm leaves it.
  EXPECT_EQ(communicator_bytes({.pp = 2, .dp = 4, .tp = 2}, 0, {.processes = 2, .devices = 8}),
            15 * 2 * kChannel);
  // A process a GPU: slices talk within the machine, replicas of a stage too.
  EXPECT_EQ(communicator_bytes({.pp = 2, .dp = 4, .tp = 2}, 0, {.processes = 16, .devices = 8}),
            15 * 2 * kChannel + (3 + 1) * 32 * kChannel);
}

}  // namespace
}  // namespace strata
