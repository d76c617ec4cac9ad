#include "strata/comm/collectives.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "strata/comm/mesh_groups.h"
#include "strata/comm/ranks.h"

namespace strata {
namespace {

// Values whose sum depends on the order of addition.
at::Tensor values_of(int rank, std::int64_t numel) {
  const at::Tensor index = at::arange(numel, at::kFloat);
  return (index * 0.37f + static_cast<float>(rank) * 1.61f).sin() * (rank % 2 ? 1e4f : 1.0f);
}

at::Tensor ordered_sum(int ranks, std::int64_t numel) {
  at::Tensor sum = values_of(0, numel);
  for (int rank = 1; rank < ranks; ++rank) sum = sum + values_of(rank, numel);
  return sum;
}

TEST(Collectives, SumInRankOrderWhateverTheSize) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const std::int64_t numel : {1, 15, 1000, 8192, 8193, 100000}) {
      const at::Tensor expected = ordered_sum(ranks, numel);
      run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount&) {
        at::Tensor x = values_of(group.rank(), numel);
        for (int round = 0; round < 3; ++round) {
          x.copy_(values_of(group.rank(), numel));
          all_reduce_sum(group, x);
          EXPECT_TRUE(at::equal(x, expected)) << ranks << " ranks, " << numel;
        }
      });
    }
  }
}

TEST(Collectives, TakeTheLargest) {
  run_thread_ranks({.ranks = 3}, [](Group& group, MemoryAccount&) {
    at::Tensor x = at::zeros({3});
    x[group.rank()] = static_cast<float>(group.rank() + 1);
    all_reduce_max(group, x);
    EXPECT_TRUE(at::equal(x, at::arange(1, 4, at::kFloat)));
  });
}

TEST(Collectives, GatherAndScatterAreInverse) {
  run_thread_ranks({.ranks = 2}, [](Group& group, MemoryAccount&) {
    const at::Tensor whole = values_of(0, 3 * 8 * 5).view({3, 8, 5});
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
    at::Tensor a = values_of(group.rank(), numel), b = a.clone();
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
    AllGather::start(group, own(a), shards).finish(gathered);
    EXPECT_TRUE(at::equal(gathered, expected));
    group.barrier();
  });
}

TEST(MeshGroups, JoinTheRanksOfEachAxis) {
  const Mesh mesh{.pp = 2, .dp = 4, .tp = 2};
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& world, MemoryAccount&) {
    MeshGroups groups = make_mesh_groups(world, mesh, 2);
    const MeshPlace place = mesh.place(world.rank());
    EXPECT_EQ(groups.pp.rank(), place.pp);
    EXPECT_EQ(groups.dp.rank(), place.dp);
    EXPECT_EQ(groups.tp.rank(), place.tp);
    EXPECT_EQ(groups.shard.rank(), place.dp % 2);
    EXPECT_EQ(groups.replica.rank(), place.dp / 2);
    // Groups of the same two ranks don't read each other's messages.
    double sum[] = {static_cast<double>(world.rank())};
    groups.shard.all_reduce(sum);
    EXPECT_EQ(sum[0], 2.0 * world.rank() + (place.dp % 2 ? -2 : 2));
  });
}

}  // namespace
}  // namespace strata
