// Compares coded sums and gathers with codes that one thread makes of all ranks' values.
#include "strata/comm/coded_collectives.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "strata/comm/rank_cases_test.h"

namespace strata {
namespace {

using enum TrafficFormat;

BlockCode code_of(TrafficFormat format, std::int64_t numel) {
  return {format, 64, {{0, numel / 4 * 2}, {numel / 4 * 2, numel - 10}}};
}

// What the others get of x.
at::Tensor coded(const BlockCode& code, const at::Tensor& x) {
  const FlatRange all{0, x.numel()};
  at::Tensor result = at::zeros_like(x);
  code.decode(code.encode(x, all), all, result);
  return result;
}

at::Tensor coded_sum(const BlockCode& code, int ranks, std::int64_t numel) {
  at::Tensor sum = at::zeros({numel});
  for (int rank = 0; rank < ranks; ++rank) sum = sum + coded(code, example_values(rank, numel));
  return sum;
}

void expect_sums_and_gathers(Group& group, TrafficFormat format, std::int64_t numel) {
  const Shards shards = cut({0, numel}, group.size());
  const FlatRange own = shards[static_cast<std::size_t>(group.rank())];
  const BlockCode code = code_of(format, numel);
  const at::Tensor values = example_values(group.rank(), numel);
  CodedSum first = CodedSum::start(group, values, shards, code);
  CodedSum second = CodedSum::start(group, values, shards, code);
  values.fill_(1e9);  // start() has encoded them
  const at::Tensor sum = at::full({own.size()}, 3.0);
  first.finish(sum, /*accumulate=*/false);
  const at::Tensor expected = coded_sum(code, group.size(), numel).narrow(0, own.begin, own.size());
  EXPECT_TRUE(at::equal(sum, expected));
  second.finish(sum, /*accumulate=*/true);
  EXPECT_LE((sum - 2 * expected).abs().max().item<double>(), 1e-6 * 2e4) << "added";

  const at::Tensor all = example_values(7, numel), flat = at::zeros({numel});
  const at::Tensor shard = all.narrow(0, own.begin, own.size()).clone();
  CodedGather gather = CodedGather::start(group, shard, shards, code);
  shard.fill_(1e9);
  gather.finish(flat);
  EXPECT_TRUE(at::equal(flat, coded(code, all)));
}

TEST(CodedCollectives, AreThoseOfTheCodesOfAllRanks) {
  for (const int ranks : {1, 2, 3, 4})
    for (const TrafficFormat format : {kInt8, kInt4})
      run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount&) {
        expect_sums_and_gathers(group, format, 40000);
      });
}

TEST(CodedCollectives, AreTheSameBetweenProcesses) {
  FaultyNetwork network(2,
                        {.seed = 4, .most_delay = std::chrono::milliseconds(1), .reorder = true});
  run_on_two_processes(network, 4, [](Group& group, MemoryAccount&) {
    expect_sums_and_gathers(group, kInt8, 2000000);
  });
}

// A small layer has fewer blocks than there are ranks.
TEST(CodedCollectives, AllowEmptyShards) {
  run_thread_ranks({.ranks = 4}, [](Group& group, MemoryAccount&) {
    const std::int64_t numel = 1500;
    const Shards shards = cut({0, numel}, 4);
    const FlatRange own = shards[static_cast<std::size_t>(group.rank())];
    const BlockCode code(kInt4, 128, {{0, numel}});
    CodedSum sum = CodedSum::start(group, example_values(group.rank(), numel), shards, code);
    const at::Tensor into = at::zeros({own.size()});
    sum.finish(into, false);
    EXPECT_TRUE(at::equal(into, coded_sum(code, 4, numel).narrow(0, own.begin, own.size())));
    const at::Tensor flat = at::zeros({numel});
    CodedGather::start(group, into, shards, code).finish(flat);
    EXPECT_TRUE(at::equal(flat, coded(code, coded_sum(code, 4, numel))));
  });
}

// A part of a buffer that begins later, such as a ZeRO shard.
TEST(CodedCollectives, GatherAPartOfABuffer) {
  run_thread_ranks({.ranks = 2}, [](Group& group, MemoryAccount&) {
    const BlockCode code(kInt8, 128, {{0, 3000}, {3008, 10000}});
    const FlatRange shard{2048, 10000};
    const Shards parts = cut(shard, 2);
    const FlatRange own = parts[static_cast<std::size_t>(group.rank())];
    const at::Tensor all = example_values(1, 10000);
    const at::Tensor flat = at::zeros({shard.size()});
    CodedGather::start(group, all.narrow(0, own.begin, own.size()), parts, code)
        .finish(flat, shard.begin);
    EXPECT_TRUE(at::equal(flat, coded(code, all).narrow(0, shard.begin, shard.size())));
  });
}

TEST(CodedCollectives, SendTheBytesOfTheirCodes) {
  constexpr std::int64_t kNumel = 1 << 20;
  for (const auto& [format, bits] : {std::pair(kInt8, 8), std::pair(kInt4, 4)})
    run_thread_ranks({.ranks = 4}, [&, format = format, bits = bits](Group& group, MemoryAccount&) {
      const BlockCode code(format, 128, {{0, kNumel}});
      const Shards shards = cut({0, kNumel}, 4);
      const at::Tensor x = example_values(group.rank(), kNumel);
      CodedSum sum = CodedSum::start(group, x, shards, code);
      const at::Tensor own = at::zeros({kNumel / 4});
      sum.finish(own, false);
      const std::int64_t whole = kNumel * bits / 8 + 4 * kNumel / 128;
      EXPECT_EQ(group.sent_bytes(), whole * 3 / 4);
      CodedGather::start(group, own, shards, code).finish(x);
      EXPECT_EQ(group.sent_bytes(), whole * 3 / 2);
    });
}

}  // namespace
}  // namespace strata
