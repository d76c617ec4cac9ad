#include "strata/plan/search/process_bytes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strata/plan/example_models_test.h"

namespace strata {
namespace {

// The first stage has the most bytes because its values wait longest.
Plan plan_of(const MeshRequest& mesh, int stages) {
  constexpr std::int64_t kMiB = 1 << 20;
  PlanRequest request;
  request.dataflow = chain(4);
  request.costs_cheap = equal_costs(
      request.dataflow,
      {.forward_seconds = 1, .backward_seconds = 2, .weight_bytes = kMiB, .saved_bytes = kMiB},
      {.bytes = kMiB});
  request.costs_none = request.costs_cheap;
  request.shape = {stages, 4};
  request.mesh = mesh;
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
