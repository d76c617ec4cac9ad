// Plans of whole meshes: what make_plan, plan_text and to_json return with replicas and
// tensor-parallel ranks.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/plan/example_models_test.h"
#include "strata/plan/search/planner.h"
#include "strata/plan/search/shared_devices.h"
#include "strata/plan/text/plan_text.h"

namespace strata {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

PlanRequest request_for(const PipelineShape& shape, const MeshRequest& mesh,
                        std::int64_t device_bytes = 0) {
  PlanRequest request;
  request.dataflow = chain(8);
  request.costs[Recompute::kCheap] = equal_costs(request.dataflow,
                                                 {.forward_seconds = 10e-3,
                                                  .backward_seconds = 20e-3,
                                                  .update_seconds = 1e-3,
                                                  .weight_bytes = 8 * kMiB,
                                                  .gradient_bytes = 8 * kMiB,
                                                  .state_bytes = 16 * kMiB,
                                                  .saved_bytes = kMiB},
                                                 {.bytes = kMiB});
  if (mesh.axes[Axis::kTensor] > 1) add_sums_of_blocks(request.costs[Recompute::kCheap], kMiB);
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap];
  request.memory.device.count = device_bytes;
  request.memory.host.count = 1;  // a host without memory
  request.mesh = mesh;
  set_shape(request, shape);
  return request;
}

TEST(PlanMesh, EveryStageOfZeroNeedsLessMemory) {
  std::int64_t last = 0;
  for (int zero = 0; zero <= 3; ++zero) {
    MeshRequest mesh{
        .axes = {{Axis::kData, 4}},
        .zero = {.stage = zero, .reduce = zero >= 2 ? ReduceMode::kEach : ReduceMode::kOnce}};
    const Plan plan = make_plan(request_for({1, 4}, mesh));
    EXPECT_TRUE(zero == 0 || peak_bytes(plan.ledger) < last) << zero;
    last = peak_bytes(plan.ledger);
  }
}

TEST(PlanMesh, ReducesOnceIfThatFitsElseAfterEachMicroBatch) {
  const MeshRequest mesh{.axes = {{Axis::kData, 4}}, .zero = {.stage = 2}};
  const Plan once = make_plan(request_for({1, 4}, mesh));
  EXPECT_EQ(once.decisions().zero.reduce, ReduceMode::kOnce);
  EXPECT_EQ(once.reduce_reason, "auto: the least communication");
  const Plan each = make_plan(request_for({1, 4}, mesh, peak_bytes(once.ledger) - 1));
  EXPECT_EQ(each.decisions().zero.reduce, ReduceMode::kEach);
  EXPECT_EQ(each.reduce_reason.substr(0, 24), "auto: once a step needs ");
  EXPECT_LT(peak_bytes(each.ledger), peak_bytes(once.ledger));
}

TEST(PlanMesh, ObeysReduceOnceEvenIfItDoesNotFit) {
  const Plan once =
      make_plan(request_for({1, 4}, {.axes = {{Axis::kData, 4}}, .zero = {.stage = 2}}));
  EXPECT_THROW(
      make_plan(request_for(
          {1, 4}, {.axes = {{Axis::kData, 4}}, .zero = {.stage = 2, .reduce = ReduceMode::kOnce}},
          peak_bytes(once.ledger) - 1)),
      UserError);
}

TEST(PlanMesh, ProposesZeroIfReplicasExceedMemory) {
  try {
    make_plan(request_for({1, 4}, {.axes = {{Axis::kData, 4}}}, 200 * kMiB));
    FAIL() << "fits";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "plan.memory");
    EXPECT_EQ(error.text().fix, "set mesh.zero=1");
  }
  EXPECT_NO_THROW(make_plan(
      request_for({1, 4}, {.axes = {{Axis::kData, 4}}, .zero = {.stage = 1}}, 200 * kMiB)));
}

// The fastest cut, four layers each, exceeds the memory of rank 0, which holds saved bytes of two
// micro-batches. Unsharded states exceed it for any cut, so the partitioner has to count shards.
TEST(PlanMesh, PartitionCountsBytesOfShards) {
  PlanRequest request =
      request_for({2, 4}, {.axes = {{Axis::kData, 4}}, .zero = {.stage = 1}}, 125 * kMiB);
  for (int l = 0; l < 8; ++l) {
    LayerCost& layer = request.costs[Recompute::kCheap].layers[l];
    layer.weight_bytes = layer.gradient_bytes = kMiB;
    layer.state_bytes = 64 * kMiB;
    layer.saved_bytes = l < 4 ? 10 * kMiB : 0;
  }
  for (ValueCost& value : request.costs[Recompute::kCheap].values) value.bytes = 0;
  EXPECT_EQ(make_plan(request).decisions().partition, (Partition{{0, 3, 8}}));
}

TEST(PlanMesh, ShowsBytesAndExposedTimeOfEveryAxis) {
  const MeshRequest mesh{
      .axes = {{Axis::kData, 2}, {Axis::kTensor, 2}},
      .zero = {.stage = 1},
      .rates = {{Axis::kPipeline, 1e9}, {Axis::kData, 5e9}, {Axis::kTensor, 5e9}}};
  EXPECT_EQ(
      plan_text(make_plan(request_for({2, 4}, mesh))),
      R"(1f1b · 8 ranks (pp 2 × dp 2 × cp 1 × tp 2, zero 1) · 8 layers · 4 micro-batches a step

stage  rank  layers                      weights  forward  backward
    0     0       4  layer0 .. layer3  32.00 MiB  41.5 ms   81.3 ms
    1     1       4  layer4 .. layer7  32.00 MiB  41.3 ms   81.5 ms

rank 0: F0 F1 .  B0 F2 B1 F3 B2 .  B3
rank 1: .  F0 B0 F1 B1 F2 B2 F3 B3 .

MiB on rank  weights  gradients  states  saved  values   peak
          0     32.0       32.0    32.0    8.0     9.0  113.0
          1     32.0       32.0    32.0    4.0     6.0  106.0

sent by rank        pp         dp   cp         tp
           0  4.00 MiB  32.00 MiB  0 B  52.00 MiB
           1  4.00 MiB  32.00 MiB  0 B  52.00 MiB

reduce     once a step (auto: the least communication)
moving     pp 4.19 ms, dp 6.71 ms, cp 0 s, tp 10.9 ms on the busiest rank
exposed    pp 4.19 ms, dp 4.19 ms, cp 0 s, tp 13.6 ms of the step
recompute  cheap
memory     113.00 MiB on the fullest rank
predicted  624 ms a step, bubble 21.0 %
)");
}

// Two ranks of a pipeline on one GPU, with host memory for the rest.
PlanRequest on_one_gpu(std::int64_t gpu_bytes) {
  PlanRequest request = request_for({2, 4}, {});
  request.memory.host = {};
  request.costs[Recompute::kNone].devices = request.costs[Recompute::kCheap].devices =
      shared_devices({{Axis::kPipeline, 2}}, {3, 3}, gpu_bytes);
  return request;
}

TEST(PlanMesh, ReportsMemoryAndIdleTimeOfSharedGpu) {
  PlanRequest request = on_one_gpu(512 * kMiB);
  request.micro_batch = 1;
  const Plan plan = make_plan(request);
  const std::int64_t bytes = plan.ledger[0].peak_bytes + plan.ledger[1].peak_bytes;
  const std::string text = plan_text(plan);
  EXPECT_NE(
      text.find("devices    2 ranks share 1 GPU, up to 2 on one: their work is done one after "
                "another, and the GPUs idle 0.0 % of a step; they need " +
                format_bytes(bytes) + " of the 512.00 MiB of one\n"),
      std::string::npos)
      << text;
  const auto json = nlohmann::json::parse(to_json(plan).dump())["shared_devices"];
  EXPECT_EQ(json["stages"], nlohmann::json::parse("[[0, 1]]"));
  EXPECT_EQ(json["peak_bytes"], bytes);
  EXPECT_EQ(devices_of(plan), 1);
  EXPECT_TRUE(to_json(make_plan(request_for({2, 4}, {})))["shared_devices"].empty());
  EXPECT_EQ(
      devices_of(make_plan(request_for({2, 4}, {.axes = {{Axis::kData, 2}, {Axis::kTensor, 2}}}))),
      8);
}

// 256 MiB of weights, gradients and states, and little else.
TEST(PlanMesh, OffloadsWhatDoesNotFitSharedGpu) {
  EXPECT_FALSE(make_plan(on_one_gpu(0)).placement.leaves_device());
  EXPECT_FALSE(make_plan(on_one_gpu(300 * kMiB)).placement.leaves_device());
  const Plan crowded = make_plan(on_one_gpu(200 * kMiB));
  EXPECT_TRUE(crowded.placement.leaves_device());
  EXPECT_LE(shared_peak_bytes(crowded.costs.devices, crowded.ledger), 200 * kMiB);
}

// 256 MiB of state and 120 MiB saved by eight layers: some are recomputed, but not all.
TEST(PlanMesh, RecomputesWhatDoesNotFitSharedGpu) {
  PlanRequest request = on_one_gpu(350 * kMiB);
  request.memory.recompute = RecomputeMode::kAuto;
  for (LayerCost& layer : request.costs[Recompute::kCheap].layers) layer.saved_bytes = 10 * kMiB;
  request.costs[Recompute::kNone].layers = request.costs[Recompute::kCheap].layers;
  const Plan plan = make_plan(request);
  EXPECT_FALSE(plan.placement.leaves_device());
  EXPECT_LE(shared_peak_bytes(plan.costs.devices, plan.ledger), 350 * kMiB);
  EXPECT_FALSE(plan.decisions().recompute.empty());
  EXPECT_LT(plan.decisions().recompute.layers().size(), 8u);
}

TEST(PlanMesh, RejectsRanksThatDoNotFitSharedGpu) {
  PlanRequest request = on_one_gpu(100 * kMiB);
  request.memory.host.count = 1;
  try {
    make_plan(request);
    FAIL() << "fits";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().what,
              "the plan needs more memory than a GPU has for the ranks that share it");
    EXPECT_EQ(error.text().expected, "at most 100.00 MiB on a GPU");
    EXPECT_NE(error.text().got.find(" on the fullest GPU\n"), std::string::npos);
    EXPECT_NE(error.text().fix.find("memory.host="), std::string::npos) << error.text().fix;
  }
  // A GPU without memory even for what a layer needs while it runs.
  request.costs[Recompute::kCheap].layers[3].backward_transient_bytes = 110 * kMiB;
  try {
    make_plan(request);
    FAIL() << "fits";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().fix, "set mesh.pp, mesh.dp and mesh.tp for fewer ranks, such as one");
  }
}

// More ranks on the same GPU do not help; the search must not assume a device for each of them.
TEST(PlanMesh, ProposesBudgetInsteadOfMoreRanksOnSameGpu) {
  PlanRequest request = on_one_gpu(512 * kMiB);
  request.memory.host.count = 1;
  request.memory.device.count = 60 * kMiB;
  try {
    make_plan(request);
    FAIL() << "fits";
  } catch (const UserError& error) {
    EXPECT_NE(error.text().fix.find("memory.device="), std::string::npos) << error.text().fix;
  }
}

TEST(PlanMesh, JsonHoldsMeshAndTraffic) {
  const Plan plan = make_plan(
      request_for({2, 4}, {.axes = {{Axis::kData, 2}, {Axis::kTensor, 2}}, .zero = {.stage = 3}}));
  const auto json = nlohmann::json::parse(to_json(plan).dump());
  EXPECT_EQ(json["mesh"]["pp"], 2);
  EXPECT_EQ(json["mesh"]["dp"], 2);
  EXPECT_EQ(json["mesh"]["tp"], 2);
  EXPECT_EQ(json["mesh"]["zero"], 3);
  EXPECT_EQ(json["mesh"]["reduce"], "once");
  EXPECT_EQ(json["mesh"]["exposed_seconds"]["tp"],
            plan.communication.exposed_seconds[Axis::kTensor]);
  EXPECT_EQ(json["ranks"][1]["communication"]["dp"]["sent_bytes"],
            plan.communication.ranks[1][Axis::kData].bytes);
  EXPECT_GT(plan.communication.ranks[1][Axis::kData].bytes, 0);
}

}  // namespace
}  // namespace strata
