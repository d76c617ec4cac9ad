#include "strata/plan/search/shared_devices.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

using Ints = std::vector<int>;
using Doubles = std::vector<double>;
using Ids = std::vector<std::uint64_t>;

SharedDevices in_turns(const Mesh& mesh, int ranks_a_machine, int devices) {
  return shared_devices(mesh, devices_in_turns(mesh.size(), ranks_a_machine, devices));
}

TEST(SharedDevices, AreAssignedRoundRobinPerMachine) {
  EXPECT_EQ(devices_in_turns(4, 4, 1), Ids({0, 0, 0, 0}));
  EXPECT_EQ(devices_in_turns(4, 4, 3), Ids({0, 1, 2, 0}));
  EXPECT_EQ(devices_in_turns(6, 3, 2), Ids({0, 1, 0, 2, 3, 2}));
  EXPECT_EQ(devices_in_turns(4, 2, 4), Ids({0, 1, 4, 5}));
}

TEST(SharedDevices, AreEmptyIfEachRankHasItsOwn) {
  EXPECT_TRUE(in_turns({{Axis::kPipeline, 4}}, 4, 4).empty());
  EXPECT_TRUE(in_turns({{Axis::kPipeline, 8}, {Axis::kData, 2}}, 4, 4).empty());  // four machines
  EXPECT_TRUE(shared_devices({{Axis::kPipeline, 4}}, {}).empty());         // devices are unknown
  EXPECT_TRUE(shared_devices({{Axis::kPipeline, 2}}, {7, 1000}).empty());  // ids, not numbers
}

TEST(SharedDevices, AreThoseOfOnePipeline) {
  EXPECT_EQ(in_turns({{Axis::kPipeline, 4}}, 4, 1).of_rank, Ints({0, 0, 0, 0}));
  EXPECT_EQ(in_turns({{Axis::kPipeline, 4}}, 4, 2).of_rank, Ints({0, 1, 0, 1}));
  EXPECT_EQ(in_turns({{Axis::kPipeline, 3}}, 3, 2).of_rank, Ints({0, 1, 0}));
  EXPECT_EQ(in_turns({{Axis::kPipeline, 6}}, 3, 2).of_rank, Ints({0, 1, 0, 2, 3, 2}));
  EXPECT_EQ(in_turns({{Axis::kPipeline, 4}}, 4, 2).times_as_long, Doubles({1, 1, 1, 1}));
  EXPECT_EQ(in_turns({{Axis::kPipeline, 4}}, 4, 2).ranks_on,
            std::vector({Ints({0, 2}), Ints({1, 3})}));
}

// Two processes of two ranks: each sees both GPUs of its machine, or one of its own.
TEST(SharedDevices, AreIdentifiedByTheirIds) {
  EXPECT_EQ(shared_devices({{Axis::kPipeline, 4}}, {70, 90, 70, 90}).of_rank, Ints({0, 1, 0, 1}));
  EXPECT_EQ(shared_devices({{Axis::kPipeline, 4}}, {90, 90, 70, 70}).of_rank, Ints({0, 0, 1, 1}));
}

// Adjacent ranks are tensor-parallel ranks, then replicas, then stages (layout/mesh.h).
TEST(SharedDevices, CountReplicasAndTensorRanksOfStage) {
  const SharedDevices slices = in_turns({{Axis::kTensor, 2}}, 2, 1);
  EXPECT_EQ(slices.of_rank, Ints({0}));
  EXPECT_EQ(slices.times_as_long, Doubles({2}));
  EXPECT_EQ(slices.ranks_on, std::vector({Ints({0, 0})}));
  // Ranks 0 and 1 are stage 0, 2 and 3 stage 1; each replica's pipeline is on one device.
  const SharedDevices replicas = in_turns({{Axis::kPipeline, 2}, {Axis::kData, 2}}, 4, 2);
  EXPECT_EQ(replicas.of_rank, Ints({0, 0}));
  EXPECT_EQ(replicas.times_as_long, Doubles({1, 1}));
  const SharedDevices all =
      in_turns({{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}}, 8, 2);
  EXPECT_EQ(all.of_rank, Ints({0, 0}));
  EXPECT_EQ(all.times_as_long, Doubles({2, 2}));
  EXPECT_EQ(in_turns({{Axis::kData, 3}}, 3, 2).times_as_long, Doubles({2}));
}

// Stage 0 of the three replicas is on devices 0, 1 and 2, stage 1 on 3, 0 and 1. No pipeline uses a
// device twice, but devices 0 and 1 have two ranks, and all others wait for those.
TEST(SharedDevices, CountRanksOfOtherPipelines) {
  const SharedDevices devices = in_turns({{Axis::kPipeline, 2}, {Axis::kData, 3}}, 6, 4);
  EXPECT_EQ(devices.ranks_on, std::vector({Ints({0, 1}), Ints({0, 1}), Ints({0}), Ints({1})}));
  // the second replica: both of its devices are shared
  EXPECT_EQ(devices.of_rank, Ints({1, 0}));
  EXPECT_EQ(devices.times_as_long, Doubles({2, 2}));
  // Device 0 has both stages of the first replica and one of the second, which waits there.
  EXPECT_EQ(shared_devices({{Axis::kPipeline, 2}, {Axis::kData, 2}}, {0, 0, 0, 1}).times_as_long,
            Doubles({3, 1}));
  EXPECT_EQ(shared_devices({{Axis::kPipeline, 3}, {Axis::kData, 1}}, {0, 0, 1}).times_as_long,
            Doubles({1, 1, 1}));
  EXPECT_EQ(shared_devices({{Axis::kPipeline, 2}, {Axis::kData, 2}}, {0, 0, 0, 0}).times_as_long,
            Doubles({2, 2}));
}

TEST(SharedDevices, HoldBytesOfAllTheirRanks) {
  Ledger ledger(3);
  for (int r = 0; r < 3; ++r) ledger[r].peak_bytes = 100 + r;
  SharedDevices devices =
      shared_devices({{Axis::kPipeline, 3}, {Axis::kData, 2}}, {0, 1, 0, 1, 1, 1}, 406);
  EXPECT_EQ(devices.ranks_on, std::vector({Ints({0, 1}), Ints({0, 1, 2, 2})}));
  EXPECT_EQ(most_ranks_on_one(devices), 4);
  EXPECT_EQ(shared_peak_bytes(devices, ledger), 100 + 101 + 102 + 102);
  EXPECT_TRUE(have_room(devices, ledger));
  devices.device_bytes = 404;
  EXPECT_FALSE(have_room(devices, ledger));
  devices.device_bytes = 0;  // device memory is unknown
  EXPECT_TRUE(have_room(devices, ledger));
  EXPECT_EQ(shared_peak_bytes({}, ledger), 0);
}

TEST(SharedDevices, AreIdleIfNoneOfTheirRanksWorks) {
  Simulation step{.step_seconds = 10, .bubble = 0.625, .ranks = std::vector<RankTimeline>(2)};
  step.ranks[0].busy_seconds = 5, step.ranks[1].busy_seconds = 2.5;
  EXPECT_EQ(idle_share({}, step), 0.625);
  EXPECT_EQ(idle_share(in_turns({{Axis::kPipeline, 2}}, 2, 1), step), 0.25);
  EXPECT_EQ(
      idle_share(shared_devices({{Axis::kPipeline, 2}, {Axis::kData, 2}}, {0, 0, 1, 1}), step),
      0.625);
}

}  // namespace
}  // namespace strata
