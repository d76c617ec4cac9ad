// Tests collectives of ranks whose devices run asynchronously. A missing wait shows as a wrong
// number, or as NaN where memory was freed too early. The tests cover order and memory, not the
// kernels' arithmetic.
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/comm/collectives.h"
#include "strata/comm/delayed_ranks_test.h"
#include "strata/comm/fake_library_test.h"
#include "strata/comm/rank_cases_test.h"

namespace strata {
namespace {

at::Tensor reversed_sum(int ranks, std::int64_t numel) {
  at::Tensor sum = example_values(ranks - 1, numel);
  for (int rank = ranks - 1; rank-- > 0;) sum = sum + example_values(rank, numel);
  return sum;
}

void expect_sums(Group& group, const std::function<at::Tensor(int, std::int64_t)>& sum_of) {
  for (const std::int64_t numel : {1, 1000, 8193, 60000}) {
    const at::Tensor expected = sum_of(group.size(), numel);
    for (int round = 0; round < 2; ++round) {
      at::Tensor x = upload(group, example_values(group.rank(), numel));
      all_reduce_sum(group, x);
      const at::Tensor sum = download(group, x);
      overwrite(group, x);
      EXPECT_TRUE(at::equal(sum, expected)) << numel << " on rank " << group.rank();
    }
  }
}

// The same without reading in between: only events order one round after the other.
void expect_sums_in_a_row(Group& group) {
  for (const std::int64_t numel : {30000, 1 << 20}) {
    const at::Tensor expected = ordered_sum(group.size(), numel);
    std::vector<at::Tensor> kept;
    for (int round = 0; round < 3; ++round) {
      at::Tensor x = upload(group, example_values(group.rank(), numel));
      all_reduce_sum(group, x);
      RankDevice& device = group.rank_device();
      kept.push_back(device.ops->empty_like(device.stream, x));
      device.ops->copy(device.stream, kept.back(), x);
      overwrite(group, x);
    }
    for (const at::Tensor& sum : kept) EXPECT_TRUE(at::equal(download(group, sum), expected));
  }
}

void expect_gathers(Group& group) {
  const int ranks = group.size(), rank = group.rank();
  const at::Tensor whole = example_values(0, 3 * 4 * ranks * 5).view({3, 4 * ranks, 5});
  const at::Tensor part = upload(group, whole.narrow(1, rank * 4, 4).contiguous());
  EXPECT_TRUE(at::equal(download(group, all_gather(group, part, 1)), whole));
  at::Tensor sum = whole.clone();
  for (int i = 1; i < ranks; ++i) sum = sum + whole;
  EXPECT_TRUE(at::equal(download(group, reduce_scatter(group, upload(group, whole), 1)),
                        sum.narrow(1, rank * 4, 4)));
  at::Tensor most = upload(group, example_values(rank, 50));
  all_reduce_max(group, most);
  at::Tensor expected = example_values(0, 50);
  for (int i = 1; i < ranks; ++i) expected = at::maximum(expected, example_values(i, 50));
  EXPECT_TRUE(at::equal(download(group, most), expected));
}

// Uneven and even shards; two sums in progress at once; in place and accumulating.
void expect_shards(Group& group) {
  const int ranks = group.size(), rank = group.rank();
  for (const bool even : {false, true}) {
    const std::int64_t numel = even ? 4096 * ranks : 5000;
    Shards shards;
    for (int i = 0; i < ranks; ++i)
      shards.push_back(even ? FlatRange{i * 4096, (i + 1) * 4096}
                            : FlatRange{i == 0 ? 0 : 2048, i == 0 || i + 1 < ranks ? 2048 : 5000});
    const at::Tensor expected = ordered_sum(ranks, numel);
    const auto own = [&](const at::Tensor& x) {
      return x.narrow(0, shards[rank].begin, shards[rank].size());
    };
    const at::Tensor a = upload(group, example_values(rank, numel)),
                     b = upload(group, example_values(rank, numel));
    ReduceScatter first = ReduceScatter::start(group, a, shards);
    ReduceScatter second = ReduceScatter::start(group, b, shards);
    const at::Tensor into = upload(group, own(at::full({numel}, 0.5, host_options(at::kFloat))));
    second.finish(into, /*accumulate=*/true);
    first.finish(own(a));
    EXPECT_TRUE(at::equal(download(group, own(a)), own(expected)));
    at::Tensor accumulated = at::full({numel}, 0.5, host_options(at::kFloat));
    for (int i = 0; i < ranks; ++i) accumulated = accumulated + example_values(i, numel);
    EXPECT_TRUE(at::equal(download(group, into), own(accumulated)));
    const at::Tensor gathered = upload(group, at::full({numel}, -1.0, host_options(at::kFloat)));
    AllGather::start(group, own(a), shards, gathered).finish();
    EXPECT_TRUE(
        at::equal(download(group, AllGather::start(group, own(a), shards).finish()), expected));
    group.barrier();
    group.before_write(a);
    overwrite(group, a);
    EXPECT_TRUE(at::equal(download(group, gathered), expected));
  }
}

TEST(DeviceCollectives, EqualThoseOnHost) {
  for (const int ranks : {2, 3}) {
    for (const int devices : {0, 1, 2}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, devices " + std::to_string(devices));
      DelayedDevices all(static_cast<std::uint64_t>(ranks * 10 + devices), devices);
      run_delayed(ranks, all, [](Group& group) {
        expect_sums(group, ordered_sum);
        expect_sums_in_a_row(group);
        expect_gathers(group);
        expect_shards(group);
      });
    }
  }
}

TEST(DeviceCollectives, NeedNoCommunicatorWithinProcess) {
  FakeLibrary library;
  DelayedDevices all(5, 0, library, Reduction::kNative);
  run_delayed(3, all, [](Group& group) {
    EXPECT_EQ(group.exchange_way(), ExchangeWay::kPeers);
    expect_sums(group, ordered_sum);
  });
  EXPECT_EQ(library.ids(), 0);
}

// Bytes that leave a process are complete in host memory; received ones are copied to the device
// again.
TEST(DeviceProcesses, WithoutCommunicatorPassThroughHost) {
  for (const bool reads_in_place : {false, true}) {
    DelayedDevices all(9);
    run_processes(
        4, all,
        [](Group& group) {
          EXPECT_EQ(group.exchange_way(), ExchangeWay::kThroughHost);
          const int next = (group.rank() + 1) % 4, previous = (group.rank() + 3) % 4;
          for (const std::int64_t numel : {10, 100000}) {
            const MessageTag tag{.value = static_cast<std::int32_t>(numel)};
            at::Tensor x = upload(group, example_values(group.rank(), numel));
            group.send(next, tag, x);
            const at::Tensor y = group.receive(previous, tag);
            EXPECT_TRUE(DelayedQueue::owns(y));
            EXPECT_TRUE(at::equal(download(group, y), example_values(previous, numel)));
          }
          expect_sums(group, ordered_sum);
          expect_gathers(group);
          expect_shards(group);
        },
        reads_in_place);
  }
}

TEST(DeviceProcesses, CommunicatorSumsInRankOrder) {
  FakeLibrary library;
  DelayedDevices all(10, 0, library);
  run_processes(4, all, [](Group& world) {
    MeshGroups groups = make_mesh_groups(world, {{Axis::kPipeline, 2}, {Axis::kData, 2}});
    EXPECT_EQ(groups[Axis::kData].exchange_way(), ExchangeWay::kPeers);  // within one process
    EXPECT_EQ(groups[Axis::kPipeline].exchange_way(), ExchangeWay::kCommunicator);
    expect_sums(groups[Axis::kData], ordered_sum);
    expect_sums(world, ordered_sum);
    expect_sums_in_a_row(world);
    expect_gathers(world);
    expect_shards(world);
  });
  EXPECT_EQ(library.ids(), 1);  // the world's; created on demand, so none for pp
  EXPECT_GT(library.calls("send"), 0);
  EXPECT_EQ(library.calls("send"), library.calls("receive"));
  EXPECT_GT(library.calls("all_gather"), 0);
  EXPECT_EQ(library.calls("all_reduce") + library.calls("reduce_scatter") + library.calls("reduce"),
            0);
}

TEST(DeviceProcesses, NativeReductionUsesLibrarySums) {
  FakeLibrary library;
  DelayedDevices all(11, 0, library, Reduction::kNative);
  run_processes(4, all, [](Group& group) {
    expect_sums(group, reversed_sum);
    for (const Shards& shards : {Shards{{0, 100}, {100, 200}, {200, 300}, {300, 400}},
                                 Shards{{0, 100}, {100, 100}, {100, 350}, {350, 400}}}) {
      const at::Tensor flat = upload(group, example_values(group.rank(), 400));
      const at::Tensor own = shard_of(flat, shards, group.rank());
      ReduceScatter::start(group, flat, shards).finish(own);
      EXPECT_TRUE(
          at::equal(download(group, own), shard_of(reversed_sum(4, 400), shards, group.rank())));
    }
  });
  EXPECT_EQ(library.ids(), 1);
  EXPECT_GT(library.calls("all_reduce"), 0);
  EXPECT_EQ(library.calls("reduce_scatter"), 4);
  EXPECT_EQ(library.calls("reduce"), 4 * 3);  // one rank's shard is empty
}

TEST(DeviceProcesses, RanksThatShareDeviceUseNoCommunicator) {
  FakeLibrary library;
  library.id_of = [](Device device) { return static_cast<std::uint64_t>(device.index / 2); };
  DelayedDevices all(12, 0, library);
  run_processes(4, all, [](Group& group) {
    EXPECT_EQ(group.exchange_way(), ExchangeWay::kThroughHost);
    expect_shards(group);
  });
  EXPECT_EQ(library.ids(), 0);
}

}  // namespace
}  // namespace strata
