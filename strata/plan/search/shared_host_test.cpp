#include "strata/plan/search/shared_host.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strata/plan/example_models_test.h"

namespace strata {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

PlanRequest request_of(int stages) {
  PlanRequest request;
  request.dataflow = chain(4);
  request.costs[Recompute::kCheap] = equal_costs(
      request.dataflow,
      {.forward_seconds = 1, .backward_seconds = 2, .update_seconds = 0.5, .weight_bytes = kGiB});
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap];
  set_shape(request, {stages, 4});
  return request;
}

TEST(SharedHost, ReportsThreadsPerCore) {
  const Plan plan = make_plan(request_of(2));
  EXPECT_EQ(
      shared_host_text(plan, {.ranks = 16, .cores = 2, .bytes = 99 * kGiB}),
      "cores      16 ranks of 1 thread share 2 cores: compute is assumed to take 8.0 times as "
      "long\n");
  EXPECT_EQ(
      shared_host_text(plan, {.ranks = 2, .threads_per_rank = 3, .cores = 4, .bytes = 99 * kGiB}),
      "cores      2 ranks of 3 threads share 4 cores: compute is assumed to take 1.5 times as "
      "long\n");
  EXPECT_EQ(
      shared_host_text(plan, {.ranks = 2, .threads_per_rank = 2, .cores = 4, .bytes = 99 * kGiB}),
      "");
}

TEST(SharedHost, ReportsMachineMemoryWithoutBudget) {
  PlanRequest request = request_of(2);
  const SharedHost small{.ranks = 4, .cores = 4, .bytes = 7 * kGiB};  // two replicas
  EXPECT_EQ(
      shared_host_text(make_plan(request), small)
          .rfind("machine    8.00 GiB of 4 ranks, but this machine has 7.00 GiB: it will not run",
                 0),
      0u)
      << shared_host_text(make_plan(request), small);
  SharedHost enough = small;
  enough.bytes = 8 * kGiB;
  EXPECT_EQ(shared_host_text(make_plan(request), enough), "");
  request.memory.device.count = 4 * kGiB;
  EXPECT_EQ(shared_host_text(make_plan(request), small), "");
}

TEST(SharedHost, SlowsComputeByWaitingThreads) {
  CostTable costs = request_of(2).costs[Recompute::kCheap];
  share_cores(costs, {.ranks = 16, .cores = 2});
  EXPECT_EQ(costs.layers[3].forward_seconds, 8);
  EXPECT_EQ(costs.layers[3].backward_seconds, 16);
  EXPECT_EQ(costs.layers[3].update_seconds, 4);
  share_cores(costs, {.ranks = 1, .cores = 2});
  EXPECT_EQ(costs.layers[3].forward_seconds, 8);
}

TEST(SharedHost, CountsRanksWithCoresOfTheirOwn) {
  EXPECT_EQ(ranks_side_by_side({.ranks = 16, .cores = 2}), 2);
  EXPECT_EQ(ranks_side_by_side({.ranks = 2, .threads_per_rank = 3, .cores = 4}), 1);
  EXPECT_EQ(ranks_side_by_side({.ranks = 2, .threads_per_rank = 8, .cores = 4}), 1);
  EXPECT_EQ(ranks_side_by_side({.ranks = 2, .cores = 4}), 2);
}

// The first stage has the most bytes because its values wait longest.
Plan plan_of(const MeshRequest& mesh, int stages) {
  constexpr std::int64_t kMiB = 1 << 20;
  PlanRequest request;
  request.dataflow = chain(4);
  request.costs[Recompute::kCheap] = equal_costs(
      request.dataflow,
      {.forward_seconds = 1, .backward_seconds = 2, .weight_bytes = kMiB, .saved_bytes = kMiB},
      {.bytes = kMiB});
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap];
  request.mesh = mesh;
  set_shape(request, {stages, 4});
  return make_plan(request);
}

TEST(ProcessBytes, SumsRanksOfFullestProcess) {
  MeshRequest mesh;
  mesh.axes[Axis::kData] = 2;
  const Plan plan = plan_of(mesh, 2);
  const std::int64_t first = plan.ledger[0].peak_bytes, last = plan.ledger[1].peak_bytes;
  ASSERT_GT(first, last);
  const ProcessBytes all = process_bytes(plan, {.ranks = 4, .threads_per_rank = 3});
  EXPECT_EQ(all.accounts, 2 * first + 2 * last);  // two replicas
  EXPECT_EQ(all.thread_bytes, 12 * kThreadBytes);
  EXPECT_EQ(all.total(), all.accounts + 12 * kThreadBytes + kProgramBytes);
  EXPECT_EQ(process_bytes(plan, {.ranks = 2}).accounts, 2 * first);
  EXPECT_EQ(process_bytes(plan, {.ranks = 3}).accounts, 2 * first + last);
  EXPECT_EQ(process_bytes(plan, {.ranks = 1}).accounts, first);
}

TEST(ProcessBytes, CountsHostMemoryOfRanksTrainedThere) {
  Plan plan = plan_of({}, 1);
  const std::int64_t before = process_bytes(plan, {}).accounts;
  plan.ledger[0].host.states = 1000;
  plan.ledger[0].host.staging = 50;
  EXPECT_EQ(process_bytes(plan, {}).accounts, before + 1050);
}

TEST(ProcessBytes, TextListsAllParts) {
  const ProcessBytes process{.ranks = 1,
                             .threads = 2,
                             .accounts = std::int64_t{100} << 20,
                             .thread_bytes = std::int64_t{4} << 20,
                             .program = std::int64_t{150} << 20};
  EXPECT_EQ(process_text(process),
            "254.00 MiB resident: 100.00 MiB of 1 rank, 4.00 MiB of 2 threads, 150.00 MiB of the "
            "program and its libraries");
  EXPECT_EQ(to_json(process)["bytes"], std::int64_t{254} << 20);
  EXPECT_EQ(to_json(process)["account_bytes"], std::int64_t{100} << 20);
}

}  // namespace
}  // namespace strata
