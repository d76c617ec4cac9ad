#include "strata/plan/search/shared_host.h"

#include <gtest/gtest.h>

#include "strata/plan/example_models_test.h"

namespace strata {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

PlanRequest request_of(int stages) {
  PlanRequest request;
  request.dataflow = chain(4);
  request.costs_cheap = equal_costs(
      request.dataflow,
      {.forward_seconds = 1, .backward_seconds = 2, .update_seconds = 0.5, .weight_bytes = kGiB});
  request.costs_none = request.costs_cheap;
  request.shape = {stages, 4};
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
  CostTable costs = request_of(2).costs_cheap;
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

}  // namespace
}  // namespace strata
