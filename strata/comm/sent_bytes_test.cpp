// Tests that a group counts the bytes of the closed forms in collectives.h, however its ranks are
// connected.
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "strata/comm/collectives.h"
#include "strata/comm/delayed_ranks_test.h"
#include "strata/comm/fake_library_test.h"
#include "strata/comm/rank_cases_test.h"
#include "strata/comm/ranks.h"
#include "strata/transport/faulty_transport.h"

namespace strata {
namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kNumel = 4 * 16 * 1000;  // divided evenly
constexpr std::int64_t kBytes = kNumel * 4;

// What this rank sends while it runs the collective.
template <typename Collective>
std::int64_t sent_by(Group& group, const Collective& collective) {
  const std::int64_t before = group.sent_bytes();
  collective();
  return group.sent_bytes() - before;
}

void expect_closed_forms(Group& group, const std::function<at::Tensor(at::Tensor)>& placed) {
  ASSERT_EQ(group.size(), kRanks);
  group.exchange_way();  // ranks tell each other their devices
  const at::Tensor x = placed(example_values(group.rank(), kNumel));
  EXPECT_EQ(sent_by(group,
                    [&] {
                      at::Tensor sum = placed(example_values(0, kNumel));
                      all_reduce_sum(group, sum);
                    }),
            2 * (kRanks - 1) * kBytes / kRanks);
  EXPECT_EQ(sent_by(group,
                    [&] {
                      at::Tensor few = placed(example_values(0, 100));
                      all_reduce_sum(group, few);
                    }),
            (kRanks - 1) * 400);  // whole tensors
  EXPECT_EQ(sent_by(group, [&] { all_gather(group, x, 0); }), (kRanks - 1) * kBytes);
  EXPECT_EQ(sent_by(group, [&] { reduce_scatter(group, x, 0); }), (kRanks - 1) * kBytes / kRanks);
  const Shards shards = cut({0, kNumel}, kRanks);
  const at::Tensor own = placed(example_values(0, shards[group.rank()].size()));
  EXPECT_EQ(sent_by(group, [&] { ReduceScatter::start(group, x, shards).finish(own); }),
            kBytes - static_cast<std::int64_t>(own.nbytes()));
  EXPECT_EQ(sent_by(group, [&] { AllGather::start(group, own, shards).finish(); }),
            (kRanks - 1) * static_cast<std::int64_t>(own.nbytes()));
}

void expect_numbers(Group& group) {
  std::array<double, 10> numbers{};
  // To rank 0 and back.
  EXPECT_EQ(sent_by(group, [&] { group.all_reduce(numbers); }),
            group.rank() == 0 ? (kRanks - 1) * 80 : 80);
  const int next = (group.rank() + 1) % kRanks, previous = (group.rank() + kRanks - 1) % kRanks;
  EXPECT_EQ(sent_by(group,
                    [&] {
                      group.send(next, {}, example_values(0, 50));
                      group.receive(previous, {});
                    }),
            200);
}

at::Tensor unplaced(const at::Tensor& x) { return x; }

TEST(SentBytes, AreThoseOfClosedFormsBetweenThreads) {
  run_thread_ranks({.ranks = kRanks}, [](Group& group, MemoryAccount&) {
    expect_closed_forms(group, unplaced);
    expect_numbers(group);
  });
}

TEST(SentBytes, AreTheSameBetweenProcesses) {
  for (const bool reads_in_place : {false, true}) {
    FaultyNetwork network(2, {.reads_in_place = reads_in_place});
    run_on_two_processes(network, kRanks, [](Group& group, MemoryAccount&) {
      expect_closed_forms(group, unplaced);
      expect_numbers(group);
    });
  }
}

TEST(SentBytes, AreTheSameByCommunicator) {
  for (const Reduction reduction : {Reduction::kOrdered, Reduction::kNative}) {
    FakeLibrary library;
    DelayedDevices all(12, 0, library, reduction);
    run_processes(kRanks, all, [&](Group& group) {
      const auto placed = [&](const at::Tensor& x) { return upload(group, x); };
      if (reduction == Reduction::kOrdered) return expect_closed_forms(group, placed);
      at::Tensor x = placed(example_values(0, kNumel));
      group.exchange_way();
      EXPECT_EQ(sent_by(group, [&] { all_reduce_sum(group, x); }),
                2 * (kRanks - 1) * kBytes / kRanks);
    });
  }
}

TEST(SentBytes, OfAnAxisCountForThatAxisAlone) {
  run_thread_ranks({.ranks = 8}, [](Group& world, MemoryAccount&) {
    MeshGroups groups = make_mesh_groups(world, {{Axis::kPipeline, 2}, {Axis::kData, 4}},
                                         /*shard_ranks=*/2);
    groups.shard.barrier();
    at::Tensor x = at::zeros({100});
    all_reduce_sum(groups.shard, x);
    all_reduce_sum(groups.replica, x);
    EXPECT_EQ(groups.weights.sent_bytes(), 800);  // both are parts of the group
    EXPECT_EQ(groups[Axis::kData].sent_bytes(), 0);
    EXPECT_EQ(groups[Axis::kPipeline].sent_bytes(), 0);
    EXPECT_EQ(groups.world.sent_bytes(), 0);
    all_reduce_sum(groups[Axis::kPipeline], x);
    EXPECT_EQ(groups[Axis::kPipeline].sent_bytes(), 400);
    all_reduce_sum(groups.world, x);
    EXPECT_EQ(groups.world.sent_bytes(), 7 * 400);
    EXPECT_EQ(world.sent_bytes(), 7 * 400);
    EXPECT_EQ(groups.weights.sent_bytes(), 800);
  });
}

}  // namespace
}  // namespace strata
