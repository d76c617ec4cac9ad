#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/collectives.h"
#include "strata/comm/group.h"
#include "strata/comm/rank_cases_test.h"
#include "strata/comm/ranks.h"
#include "strata/comm/run_on_all.h"
#include "strata/transport/faulty_transport.h"

namespace strata {
namespace {

TEST(Collectives, SumInRankOrderForAnySize) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const std::int64_t numel : {1, 15, 1000, 8192, 8193, 100000}) {
      const at::Tensor expected = ordered_sum(ranks, numel);
      run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount&) {
        at::Tensor x = example_values(group.rank(), numel);
        for (int round = 0; round < 3; ++round) {
          x.copy_(example_values(group.rank(), numel));
          all_reduce_sum(group, x);
          EXPECT_TRUE(at::equal(x, expected)) << ranks << " ranks, " << numel;
        }
      });
    }
  }
}

// Large tensors are summed in place and read there by the other ranks.
TEST(Collectives, InputMayBeOverwrittenOnReturn) {
  constexpr std::int64_t kNumel = (1 << 20) + 100;
  const at::Tensor expected = ordered_sum(2, kNumel);
  FaultyNetwork network(2, {.seed = 5, .most_delay = std::chrono::milliseconds(20)});
  run_on_two_processes(network, 2, [&](Group& group, MemoryAccount&) {
    for (int round = 0; round < 4; ++round) {
      at::Tensor x = example_values(group.rank(), kNumel);
      all_reduce_sum(group, x);
      const bool is_sum = at::equal(x, expected);
      x.fill_(-1);
      EXPECT_TRUE(is_sum);
    }
  });
}

TEST(Collectives, MaxReturnsLargest) {
  run_thread_ranks({.ranks = 3}, [](Group& group, MemoryAccount&) {
    at::Tensor x = at::zeros({3});
    x[group.rank()] = static_cast<float>(group.rank() + 1);
    all_reduce_max(group, x);
    EXPECT_TRUE(at::equal(x, at::arange(1, 4, at::kFloat)));
  });
}

TEST(Collectives, GatherAndScatterAreInverse) {
  run_thread_ranks({.ranks = 2}, [](Group& group, MemoryAccount&) {
    const at::Tensor whole = example_values(0, 3 * 8 * 5).view({3, 8, 5});
    const at::Tensor part = whole.narrow(1, group.rank() * 4, 4).contiguous();
    EXPECT_TRUE(at::equal(all_gather(group, part, 1), whole));
    EXPECT_TRUE(at::equal(reduce_scatter(group, whole, 1), part + part));
  });
}

TEST(Collectives, ShardsOverlapWithOtherWork) {
  const std::int64_t numel = 5000;
  const Shards shards = {{0, 2048}, {2048, 2048}, {2048, 5000}};  // one rank has nothing
  const at::Tensor expected = ordered_sum(3, numel);
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    at::Tensor a = example_values(group.rank(), numel), b = a.clone();
    ReduceScatter first = ReduceScatter::start(group, a, shards);
    ReduceScatter second = ReduceScatter::start(group, b, shards);  // before the first has ended
    const int rank = group.rank();
    const auto own = [&](const at::Tensor& x) {
      return x.narrow(0, shards[rank].begin, shards[rank].size());
    };
    second.finish(own(b));
    first.finish(own(a));  // in place
    EXPECT_TRUE(at::equal(own(a), own(expected)));
    EXPECT_TRUE(at::equal(own(b), own(expected)));
    const at::Tensor gathered = at::empty({numel});
    AllGather::start(group, own(a), shards, gathered).finish();
    EXPECT_TRUE(at::equal(gathered, expected));
    EXPECT_TRUE(at::equal(AllGather::start(group, own(a), shards).finish(), expected));
    group.barrier();
  });
}

TEST(MeshGroups, JoinRanksOfEachAxis) {
  const Mesh mesh{{Axis::kPipeline, 2}, {Axis::kData, 4}, {Axis::kTensor, 2}};
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& world, MemoryAccount&) {
    MeshGroups groups = make_mesh_groups(world, mesh, 2);
    const MeshPlace place = mesh.place(world.rank());
    EXPECT_EQ(groups[Axis::kPipeline].rank(), place[Axis::kPipeline]);
    EXPECT_EQ(groups[Axis::kData].rank(), place[Axis::kData]);
    EXPECT_EQ(groups[Axis::kTensor].rank(), place[Axis::kTensor]);
    EXPECT_EQ(groups.shard.rank(), place[Axis::kData] % 2);
    EXPECT_EQ(groups.replica.rank(), place[Axis::kData] / 2);
    // Groups of the same two ranks don't read each other's messages.
    double sum[] = {static_cast<double>(world.rank())};
    groups.shard.all_reduce(sum);
    EXPECT_EQ(sum[0], 2.0 * world.rank() + (place[Axis::kData] % 2 ? -2 : 2));
  });
}

// Ranks do not wait between both: one may be a collective ahead.
TEST(MeshGroups, SeparateMessagesOfMeshAndWorld) {
  const Mesh mesh{{Axis::kPipeline, 4}};
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& world, MemoryAccount&) {
    MeshGroups groups = make_mesh_groups(world, mesh);
    for (int round = 0; round < 500; ++round) {
      at::Tensor x = at::full({3}, static_cast<float>(world.rank()));
      all_reduce_sum(groups.world, x);
      double number[] = {1.0};
      world.all_reduce(number);
      ASSERT_EQ(x[2].item<float>(), 6.0f);
      ASSERT_EQ(number[0], 4.0);
    }
  });
}

// How many of four ranks get the error of type E that starts with `what`.
template <typename E>
int ranks_that_fail(const std::string& what, const std::function<void(int rank)>& action) {
  std::atomic<int> failed = 0;
  run_thread_ranks({.ranks = 4}, [&](Group& group, MemoryAccount&) {
    run_on_all(group, [] {});
    try {
      run_on_all(group, [&] { action(group.rank()); });
    } catch (const E& error) {
      if (error.text().what == what && error.text().fix != "") ++failed;
    }
    run_on_all(group, [] {});  // the group is usable afterwards
  });
  return failed;
}

TEST(RunOnAll, EveryRankThrowsErrorOfLowestFailedRank) {
  EXPECT_EQ(
      ranks_that_fail<SystemError>("disk full 2",
                                   [](int rank) {
                                     if (rank < 2) return;
                                     throw SystemError({.operation = "test.write",
                                                        .what = "disk full " + std::to_string(rank),
                                                        .fix = "free space"});
                                   }),
      4);
  EXPECT_EQ(
      ranks_that_fail<UserError>(
          "no folder",
          [](int rank) {
            if (rank != 3) return;
            throw UserError({.operation = "test.write", .what = "no folder", .fix = "name one"});
          }),
      4);
}

TEST(RunOnAll, OtherExceptionsAreInternalErrors) {
  std::atomic<int> failed = 0;
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    try {
      run_on_all(group, [&] {
        if (group.rank() == 1) throw std::runtime_error("surprise");
      });
    } catch (const InternalError& error) {
      if (error.text().got == "surprise") ++failed;
    }
  });
  EXPECT_EQ(failed, 3);
}

TEST(RunOnAll, ExhaustedMemoryIsSystemError) {
  std::atomic<int> failed = 0;
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
    try {
      run_on_all(group, [&] {
        if (group.rank() == 1) throw std::bad_alloc();
      });
    } catch (const SystemError&) {
      ++failed;
    }
  });
  EXPECT_EQ(failed, 2);
}

TEST(Gather, FollowsRankOrder) {
  std::vector<std::string> all;
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    const std::vector<std::string> gathered =
        gather(group, [&] { return std::string(static_cast<std::size_t>(group.rank()), 'x'); });
    if (group.rank() == 0) all = gathered;
    EXPECT_EQ(gathered.empty(), group.rank() > 0);
  });
  EXPECT_EQ(all, (std::vector<std::string>{"", "x", "xx"}));
}

}  // namespace
}  // namespace strata
