// Tests exchanges of ranks across processes: the same bits as among threads.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "strata/comm/collectives.h"
#include "strata/comm/group.h"
#include "strata/comm/rank_cases_test.h"
#include "strata/comm/ranks.h"
#include "tests/ranks/forked.h"

namespace strata {
namespace {

constexpr int kProcesses = 4, kRanks = 8;

// A tensor that depends only on `rank` and `number`, of any size, dtype and strides.
at::Tensor tensor_of(int rank, int number) {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                       at::kLong,  at::kInt,    at::kByte,     at::kBool};
  constexpr std::int64_t kSizes[] = {0, 1, 3, 191, 4096, 100003};
  const at::Tensor flat = at::arange(kSizes[number / 8 % 6] * 6, at::kLong) * 7 + rank + number;
  const at::Tensor typed = flat.remainder(251).to(kTypes[number % 8]);
  if (number % 3 == 0) return typed;
  const at::Tensor block = typed.view({2, -1, 3});
  return number % 3 == 1 ? block.permute({2, 0, 1}) : block.narrow(2, 1, 1);
}

TEST(Processes, SendEveryDtypeSizeAndStride) {
  expect_success(kProcesses, [](const ForkedProcess&) {
    run_ranks({.ranks = kRanks}, [](Group& group, MemoryAccount&) {
      constexpr int kTensors = 48;
      for (int number = 0; number < kTensors; ++number)
        for (int peer = 0; peer < kRanks; ++peer)
          if (peer != group.rank())
            group.send(peer, {.micro_batch = number}, tensor_of(group.rank(), number));
      for (int number = kTensors - 1; number >= 0; --number) {
        for (int peer = 0; peer < kRanks; ++peer) {
          if (peer == group.rank()) continue;
          const at::Tensor expected = tensor_of(peer, number);
          const at::Tensor got = group.receive(peer, {.micro_batch = number});
          EXPECT_EQ(got.scalar_type(), expected.scalar_type());
          EXPECT_TRUE(at::equal(got, expected)) << number;
          if (expected.is_non_overlapping_and_dense()) {
            EXPECT_EQ(got.strides(), expected.strides()) << number;
          }
        }
      }
      group.barrier();
    });
  });
}

TEST(Processes, ChargeReceiver) {
  expect_success(2, [](const ForkedProcess&) { run_ranks({.ranks = 2}, expect_charge_to_move); });
}

TEST(Processes, SumGatherAndScatterLikeThreads) {
  expect_success(kProcesses, [](const ForkedProcess&) {
    run_ranks({.ranks = kRanks}, [](Group& group, MemoryAccount&) {
      for (const std::int64_t numel : {1, 15, 8192, 8193, 300000}) {
        at::Tensor x = example_values(group.rank(), numel);
        all_reduce_sum(group, x);
        EXPECT_TRUE(at::equal(x, ordered_sum(kRanks, numel))) << numel;
      }
      at::Tensor huge = example_values(group.rank(), 1500000);  // summed in place
      all_reduce_sum(group, huge);
      EXPECT_TRUE(at::equal(huge, ordered_sum(kRanks, 1500000)));
      // bytes per row: copied, read whole, read in parts
      for (const std::int64_t width : {5, 3000, 9000}) {
        const at::Tensor x = example_values(3, 3 * 16 * width).view({3, 16, width});
        const at::Tensor share = x.narrow(1, group.rank() * 2, 2).contiguous();
        EXPECT_TRUE(at::equal(all_gather(group, share, 1), x)) << width;
        at::Tensor total = share.clone();
        for (int i = 1; i < kRanks; ++i) total += share;
        EXPECT_TRUE(at::equal(reduce_scatter(group, x, 1), total)) << width;
      }
      const at::Tensor whole = example_values(3, 32 * 5).view({32, 5});
      const at::Tensor part = whole.narrow(0, group.rank() * 4, 4).contiguous();
      EXPECT_TRUE(at::equal(all_gather(group, part, 0), whole));
      at::Tensor sum = part.clone();
      for (int i = 1; i < kRanks; ++i) sum += part;
      EXPECT_TRUE(at::equal(reduce_scatter(group, whole, 0), sum));
      at::Tensor most = at::full({2}, static_cast<float>(group.rank()));
      all_reduce_max(group, most);
      EXPECT_EQ(most[1].item<float>(), kRanks - 1.0f);
      double numbers[] = {group.rank() % 2 ? 1e16 : 1.0};
      group.all_reduce(numbers);
      double expected = 0;
      for (int rank = 0; rank < kRanks; ++rank) expected += rank % 2 ? 1e16 : 1.0;
      EXPECT_EQ(numbers[0], expected);
    });
  });
}

TEST(Processes, SumInSubgroupsOfMesh) {
  const Mesh mesh{{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}};
  expect_success(kProcesses, [&](const ForkedProcess&) {
    run_ranks({.ranks = kRanks, .mesh = mesh}, [&](Group& world, MemoryAccount&) {
      MeshGroups groups = make_mesh_groups(world, mesh);
      for (int round = 0; round < 20; ++round) {
        for (const AxisInfo& axis : kAxes) {
          Group* group = &groups[axis.id];
          double sum[] = {static_cast<double>(world.rank())};
          group->all_reduce(sum);
          double expected = 0;
          for (int i = 0; i < group->size(); ++i) expected += group->world_rank(i);
          EXPECT_EQ(sum[0], expected);
        }
      }
    });
  });
}

TEST(Processes, AgreeOnDecisionOfFirst) {
  expect_success(3, [](const ForkedProcess& self) {
    World world({.ranks = 3});
    EXPECT_EQ(world.first_rank(), self.process());
    for (const char* text : {"", "plan", "another plan"})
      EXPECT_EQ(world.agree([&] { return self.process() == 0 ? text : "mine"; }), text);
    world.run([](Group& group, MemoryAccount&) { group.barrier(); });
  });
}

TEST(Processes, EndAtDifferentTimes) {
  expect_success(3, [](const ForkedProcess&) {
    run_ranks({.ranks = 3}, [](Group& group, MemoryAccount&) {
      if (group.rank() < 2) group.send(2, {}, at::full({200000}, group.rank()));
      if (group.rank() < 2) return;
      EXPECT_EQ(group.receive(0, {})[199999].item<float>(), 0.0f);
      EXPECT_EQ(group.receive(1, {})[199999].item<float>(), 1.0f);
    });
  });
}

}  // namespace
}  // namespace strata
