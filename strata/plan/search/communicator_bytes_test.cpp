#include "strata/plan/search/gpu_costs.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr std::int64_t kChannel = std::int64_t{12} << 20;

TEST(CommunicatorBytes, AreZeroInOneProcess) {
  EXPECT_EQ(communicator_bytes({{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}}, 0, {}),
            0);
  EXPECT_EQ(communicator_bytes({}, 0, {.processes = 1, .devices = 8}), 0);
}

// 3.3 GB were reported, including rings and trees.
TEST(CommunicatorBytes, EightGpusOfOneMachineAreNearReportedBytes) {
  EXPECT_EQ(communicator_bytes({{Axis::kData, 8}}, 0, {.processes = 8, .devices = 8}),
            7 * 32 * kChannel);
  EXPECT_NEAR(7.0 * 32 * kChannel, 3.3e9, 0.5e9);
}

// The replicas of a stage are all ranks and share one communicator with the sum of the norm.
TEST(CommunicatorBytes, CountEachSetOfRanksOnce) {
  EXPECT_EQ(communicator_bytes({{Axis::kData, 16}}, 0, {.processes = 2, .devices = 8}),
            15 * 2 * kChannel);
  // Half of the replicas divide states, within a process.
  EXPECT_EQ(communicator_bytes({{Axis::kData, 16}}, 8, {.processes = 2, .devices = 8}),
            15 * 2 * kChannel);
  // Tensor-parallel ranks and replicas are within one process each, the stages are not: only the
  // norm needs a communicator.
  EXPECT_EQ(communicator_bytes({{Axis::kPipeline, 2}, {Axis::kData, 4}, {Axis::kTensor, 2}}, 0,
                               {.processes = 2, .devices = 8}),
            15 * 2 * kChannel);
  // One process per GPU: tensor-parallel ranks and replicas of a stage communicate within the
  // machine.
  EXPECT_EQ(communicator_bytes({{Axis::kPipeline, 2}, {Axis::kData, 4}, {Axis::kTensor, 2}}, 0,
                               {.processes = 16, .devices = 8}),
            15 * 2 * kChannel + (3 + 1) * 32 * kChannel);
}

}  // namespace
}  // namespace strata
