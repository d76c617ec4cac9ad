#include "strata/plan/gpu_costs.h"

#include <gtest/gtest.h>

#include "strata/plan/example_models_test.h"
#include "strata/plan/planner.h"

namespace strata {
namespace {

CostTable costs_of_four() {
  return equal_costs(chain(4),
                     {.forward_seconds = 1e-3,
                      .backward_seconds = 2e-3,
                      .weight_bytes = 1000,
                      .gradient_bytes = 1024,
                      .state_bytes = 2001,
                      .saved_bytes = 300},
                     {.bytes = 100});
}

PlanRequest on(const char* machine) {
  PlanRequest request{.dataflow = chain(4), .shape = {.ranks = 1, .micro_batches = 2}};
  request.machine = machine ? find_machine(machine) : MachineProfile{};
  request.costs_none = request.costs_cheap =
      with_gpu_costs(costs_of_four(), request.machine,
                     {.samples = 1, .heads = 4, .tokens = 100, .head_width = 60});
  return request;
}

TEST(GpuCosts, AreNoneOfACpu) {
  const CostTable costs = on(nullptr).costs_none;
  EXPECT_EQ(costs.workspace_bytes, 0);
  const Plan plan = make_plan(on(nullptr));
  EXPECT_EQ(plan.ledger[0].at_peak[ByteKind::kWorkspaces], 0);
  EXPECT_EQ(plan.ledger[0].at_peak[ByteKind::kRounding], 0);
}

// 132 multiprocessors over 4 blocks: 33 groups of 4 heads of 128 tokens of 64 numbers.
TEST(GpuCosts, HaveTheSumsOfDeterministicAttention) {
  const AttentionShape attention{.samples = 1, .heads = 4, .tokens = 100, .head_width = 60};
  EXPECT_EQ(attention_workspace_bytes(attention, 132), 33 * 4 * 128 * 64 * 4);
  EXPECT_EQ(attention_workspace_bytes(
                {.samples = 32, .heads = 12, .tokens = 1024, .head_width = 64}, 132),
            std::int64_t{32} * 12 * 1024 * 64 * 4);
  EXPECT_EQ(attention_workspace_bytes({}, 132), 0);
}

TEST(GpuCosts, StandInTheLedgerInLinesOfTheirOwn) {
  const Plan cpu = make_plan(on(nullptr)), gpu = make_plan(on("h100"));
  const ByteTable& without = cpu.ledger[0].at_peak;
  const ByteTable& with = gpu.ledger[0].at_peak;
  EXPECT_EQ(with[ByteKind::kWorkspaces], (std::int64_t{512 + 32} << 20) + 33 * 4 * 128 * 64 * 4);
  constexpr std::int64_t rounding = 4 * (24 + 0 + 47);
  EXPECT_EQ(with[ByteKind::kRounding], rounding);
  for (const ByteKind kind : {ByteKind::kWeights, ByteKind::kGradients, ByteKind::kStates,
                              ByteKind::kSaved, ByteKind::kValues})
    EXPECT_EQ(with[kind], without[kind]) << name_of(kind);
  EXPECT_EQ(gpu.ledger[0].peak_bytes,
            cpu.ledger[0].peak_bytes + with[ByteKind::kWorkspaces] + rounding);
}

TEST(GpuCosts, LetNoLayerBeFasterThanItsLaunches) {
  CostTable costs = costs_of_four();
  costs.layers[0].forward_seconds = 1e-9;
  costs.layers[1].forward_seconds = 1;
  const CostTable gpu = with_gpu_costs(costs, find_machine("h100"), {});
  EXPECT_DOUBLE_EQ(gpu.layers[0].forward_seconds, 12 * 4e-6);
  EXPECT_DOUBLE_EQ(gpu.layers[1].forward_seconds, 1);
}

TEST(GpuRates, AreTheNetworksWhereAnAxisLeavesTheMachine) {
  const MachineProfile h100 = find_machine("h100");
  const AxisRates inside = gpu_axis_rates(h100, {.pp = 2, .dp = 2, .tp = 2}, kThreadRates);
  EXPECT_EQ(inside.pp, 450e9);
  EXPECT_EQ(inside.dp, 450e9);
  const AxisRates across = gpu_axis_rates(h100, {.pp = 2, .dp = 2, .tp = 4}, kThreadRates);
  EXPECT_EQ(across.tp, 450e9);
  EXPECT_EQ(across.dp, 450e9);
  EXPECT_EQ(across.pp, 50e9);
  EXPECT_EQ(gpu_axis_rates(h100, {.tp = 16}, kThreadRates).tp, 50e9);
  EXPECT_EQ(gpu_axis_rates({}, {.tp = 16}, kThreadRates).tp, kThreadRates.tp);
}

}  // namespace
}  // namespace strata
