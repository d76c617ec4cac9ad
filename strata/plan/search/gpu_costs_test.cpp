#include "strata/plan/search/gpu_costs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/plan/example_models_test.h"
#include "strata/plan/search/planner.h"
#include "strata/plan/search/shared_devices.h"
#include "strata/plan/text/plan_text.h"

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
  PlanRequest request{.dataflow = chain(4), .micro_batches = 2};
  request.machine = machine ? find_machine(machine) : MachineProfile{};
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap] =
      with_gpu_costs(costs_of_four(), request.machine);
  return request;
}

TEST(GpuCosts, AreZeroForCpu) {
  const CostTable costs = on(nullptr).costs[Recompute::kNone];
  EXPECT_EQ(costs.workspace_bytes + costs.context_bytes, 0);
  EXPECT_EQ(costs.launch.kernel, 0);
  EXPECT_EQ(costs.layers[0].forward_launches + costs.layers[0].update_launches, 0);
  PlanRequest request = on(nullptr);
  request.recording = RecordingPlan::kAlways;
  const Plan plan = make_plan(request);
  EXPECT_TRUE(plan.recorded.empty());
  EXPECT_TRUE(plan.simulation.ranks[0].tracks.empty());
  for (const ByteKind kind :
       {ByteKind::kContext, ByteKind::kWorkspaces, ByteKind::kPools, ByteKind::kRounding})
    EXPECT_EQ(plan.ledger[0].at_peak[kind], 0) << name_of(kind);
}

// A second attention in backward takes as long as the one in forward.
TEST(GpuCosts, IncludeAttentionThatRunsAgain) {
  const MachineProfile machine = find_machine("h100");
  const auto cost_of = [&](const AttentionShape& attention) {
    CostTable costs = costs_of_four();
    costs.weight_element_bytes = 2;
    costs.layers[0].work.attention = attention;
    return with_gpu_costs(costs, machine).layers[0];
  };
  AttentionShape attention{.samples = 4, .heads = 32, .tokens = 8192, .head_width = 128};
  const LayerCost once = cost_of(attention);
  attention.runs_again = true;
  const LayerCost again = cost_of(attention);
  EXPECT_EQ(again.forward_seconds, once.forward_seconds);
  // The products' rate is in the layer's own backward_seconds.
  EXPECT_NEAR(again.backward_seconds - once.backward_seconds, once.forward_seconds - 1e-3, 1e-12);
}

// 132 multiprocessors for 4 blocks: 33 groups of 4 heads of 128 tokens of 64 numbers.
TEST(GpuCosts, IncludeSumsOfDeterministicAttention) {
  const AttentionShape attention{.samples = 1, .heads = 4, .tokens = 100, .head_width = 60};
  EXPECT_EQ(attention_workspace_bytes(attention, 132), 33 * 4 * 128 * 64 * 4);
  EXPECT_EQ(attention_workspace_bytes(
                {.samples = 32, .heads = 12, .tokens = 1024, .head_width = 64}, 132),
            std::int64_t{32} * 12 * 1024 * 64 * 4);
  EXPECT_EQ(attention_workspace_bytes({}, 132), 0);
}

TEST(GpuCosts, HaveTheirOwnLinesInLedger) {
  const Plan cpu = make_plan(on(nullptr)), gpu = make_plan(on("h100"));
  const ByteTable& without = cpu.ledger[0].at_peak;
  const ByteTable& with = gpu.ledger[0].at_peak;
  EXPECT_EQ(with[ByteKind::kContext], std::int64_t{512} << 20);
  EXPECT_EQ(with[ByteKind::kWorkspaces], std::int64_t{32} << 20);
  constexpr std::int64_t rounding = 4 * (24 + 0 + 47);
  EXPECT_EQ(with[ByteKind::kRounding], rounding);
  for (const ByteKind kind : {ByteKind::kWeights, ByteKind::kGradients, ByteKind::kStates})
    EXPECT_EQ(with[kind], without[kind]) << name_of(kind);
  EXPECT_EQ(gpu.ledger[0].peak_bytes, with.total());
  // The rank's account excludes the bytes of the driver and the allocator's rounding.
  EXPECT_EQ(with.charged(), with.total() - (std::int64_t{512} << 20) - rounding);
  EXPECT_EQ(without.charged(), without.total());
}

// 4 heads of 100 tokens of 60 numbers of 4 bytes: the library's gradients and packed ones, less
// what was freed before. The sums do not shrink with the micro-batch.
TEST(GpuCosts, CountAttentionBackwardAsPeakOfBlock) {
  CostTable costs = costs_of_four();
  costs.layers[1].input_bytes = 100;
  costs.layers[1].backward_transient_bytes = costs.layers[2].backward_transient_bytes = 77;
  const AttentionShape attention{.samples = 1, .heads = 4, .tokens = 100, .head_width = 60};
  costs.layers[1].work = block_work(attention);
  const CostTable gpu = with_gpu_costs(costs, find_machine("h100"));
  constexpr std::int64_t sums = 33 * 4 * 128 * 64 * 4, heads = 4 * 100 * 60 * 4;
  EXPECT_EQ(gpu.layers[1].backward_transient_bytes, sums + 3 * heads - 100);
  EXPECT_EQ(gpu.layers[1].backward_fixed_bytes, sums);
  EXPECT_EQ(gpu.layers[2].backward_transient_bytes, 77);  // not a block
  costs.layers[1].work.attention.shares_keys = true;
  EXPECT_EQ(with_gpu_costs(costs, find_machine("h100")).layers[1].backward_transient_bytes,
            sums + 5 * heads - 100);
}

TEST(GpuCosts, MakeAttentionSlowerThanProducts) {
  CostTable costs = costs_of_four();
  costs.layers[1].input_bytes = 100;
  const AttentionShape attention{.samples = 2, .heads = 4, .tokens = 1000, .head_width = 64};
  MachineProfile machine = find_machine("h100");
  costs.layers[1].work = block_work();
  const CostTable without = with_gpu_costs(costs, machine);
  costs.layers[1].work = block_work(attention);
  const CostTable with = with_gpu_costs(costs, machine);
  // Causal: half of 4 T C per token.
  const double seconds = 2.0 * 1000 * 1000 * 2 * 4 * 64 / machine.device.fp32;
  EXPECT_NEAR(with.layers[1].forward_seconds - without.layers[1].forward_seconds,
              seconds * (1 / 0.38 - 1), 1e-12);
  EXPECT_NEAR(with.layers[1].backward_seconds - without.layers[1].backward_seconds,
              seconds * (2.5 / 0.21 - 2), 1e-12);
  EXPECT_EQ(with.layers[2].forward_seconds, without.layers[2].forward_seconds);
}

// A GPU without measured rates: the fp32 rate is used for 16 bit, otherwise attention would cost
// nothing.
TEST(GpuCosts, AreFiniteWithoutKnownProductRate) {
  const AttentionShape attention{.samples = 1, .heads = 4, .tokens = 100, .head_width = 60};
  const double flops = 2.0 * 100 * 100 * 4 * 60;
  for (const double fp32 : {0.0, 1e12}) {
    MachineProfile machine = find_machine("h100");
    machine.device.bf16 = 0;
    machine.device.fp32 = fp32;
    CostTable costs = costs_of_four();
    costs.weight_element_bytes = 2;
    for (LayerCost& layer : costs.layers) {
      layer.recomputable = true;
      layer.input_bytes = 1;
      layer.work = block_work(attention);
    }
    const CostTable added = with_gpu_costs(costs, machine);
    const double seconds = fp32 > 0 ? flops / fp32 : 0;
    EXPECT_NEAR(added.layers[1].forward_seconds, 1e-3 + seconds * (1 / 0.38 - 1), 1e-12);
  }
}

TEST(GpuCosts, BoundKernelTimeFromBelow) {
  CostTable costs = costs_of_four();
  costs.layers[0].forward_seconds = 1e-9;
  costs.layers[1].forward_seconds = 1;
  costs.layers[2].work = block_work();
  costs.layers[2].backward_seconds = 1e-9;
  const CostTable gpu = with_gpu_costs(costs, find_machine("h100"));
  EXPECT_DOUBLE_EQ(gpu.layers[0].forward_seconds, 3 * 2e-6);
  EXPECT_DOUBLE_EQ(gpu.layers[1].forward_seconds, 1);
  EXPECT_DOUBLE_EQ(gpu.layers[2].backward_seconds, 36 * 2e-6);
}

// 1,000 bytes are 250 weights. The norm reads their gradients and the next step clears them: 2,000
// bytes.
TEST(GpuCosts, CountPassesOfNormAndClearing) {
  MachineProfile machine = find_machine("h100");
  machine.device.bandwidth.count = 1'000'000;
  CostTable costs = costs_of_four();
  costs.layers[0].update_seconds = 0.5;
  EXPECT_DOUBLE_EQ(with_gpu_costs(costs, machine).layers[0].update_seconds, 0.5 + 2e-3);
}

// ---- Launches. Four layers on one rank: 1 ms forward, 2 ms backward, 0.5 ms update of work.
constexpr double kTransfer = 0.25e-3;
struct Step {
  double launch = 7e-6, segment = 10e-6;
  RecordingPlan recording = RecordingPlan::kNever;
  int ranks = 1, micro_batches = 2;
  std::int64_t device_bytes = 0;

  PlanRequest request() const {
    PlanRequest request = on("h100");
    set_shape(request, {.ranks = ranks, .micro_batches = micro_batches});
    request.recording = recording;
    request.memory.device.count = device_bytes;
    request.memory.states = request.memory.weights = request.memory.gradients = TierChoice::kDevice;
    for (CostTable* costs : {&request.costs[Recompute::kNone], &request.costs[Recompute::kCheap]}) {
      costs->launch = {launch, segment};
      for (LayerCost& layer : costs->layers) layer.update_seconds = 0.5e-3;
      for (ValueCost& value : costs->values) value.transfer_seconds = kTransfer;
    }
    return request;
  }
  Plan plan() const { return make_plan(request()); }
};

constexpr int kForward = LayerWork().forward_kernels, kBackward = LayerWork().backward_kernels,
              kUpdate = kUpdateLaunches;
constexpr double kWork = 4 * (2 * 1e-3 + 2 * 2e-3 + 0.5e-3);

TEST(Launches, OverlapWithWorkExceptFirst) {
  const Plan plan = Step().plan();
  EXPECT_NEAR(plan.simulation.step_seconds, 7e-6 + kWork, 1e-12);
  const RankTimeline& rank = plan.simulation.ranks[0];
  EXPECT_NEAR(rank.launch_wait_seconds, 7e-6, 1e-12);
  EXPECT_NEAR(rank.busy_seconds, kWork, 1e-12);
  EXPECT_EQ(plan.simulation.ranks[0].launches, 4 * (2 * kForward + 2 * kBackward + kUpdate));
}

// The kernels of the last action are equally long; the last one starts after its launch.
TEST(Launches, BindStepWithSlowerHost) {
  const Plan plan = Step{.launch = 1e-3}.plan();
  const double host = 1e-3 * 4 * (2 * kForward + 2 * kBackward + kUpdate);
  EXPECT_NEAR(plan.simulation.step_seconds, host + 0.5e-3 / kUpdate, 1e-12);
  EXPECT_NEAR(plan.simulation.ranks[0].launch_wait_seconds, plan.simulation.step_seconds - kWork,
              1e-12);
  double tracks = 0;
  for (const TrackEvent& event : plan.simulation.ranks[0].tracks) {
    EXPECT_EQ(event.track, TrackKind::kCompute);
    tracks += event.end_seconds - event.begin_seconds;
  }
  EXPECT_NEAR(tracks, kWork, 1e-12);
}

TEST(Launches, RecordedStepHasOneSegment) {
  const Plan plan = Step{.launch = 1e-3, .recording = RecordingPlan::kAlways}.plan();
  ASSERT_EQ(plan.recorded.size(), 1u);
  EXPECT_EQ(plan.recorded[0].size(), 1u);
  EXPECT_NEAR(plan.simulation.step_seconds, 10e-6 + kWork, 1e-12);
  // A single kernel; otherwise the device would wait for the others, too.
  const Plan slow = Step{.segment = 0.1, .recording = RecordingPlan::kAlways}.plan();
  EXPECT_NEAR(slow.simulation.step_seconds, 0.1 + kWork, 1e-12);
  EXPECT_EQ(plan.simulation.ranks[0].launches, 0);
  EXPECT_EQ(plan.ledger[0].at_peak[ByteKind::kPools], 0);
}

// Messages divide a pipeline's steps: each of two ranks has a segment per forward and backward,
// then one for the update.
TEST(Launches, PipelineHasSegmentsBetweenMessages) {
  Step step{.launch = 1e-3, .recording = RecordingPlan::kAlways, .ranks = 2};
  const Plan plan = step.plan();
  EXPECT_EQ(plan.recorded[0].size(), 5u);
  // The message track of the second rank's device shows the two values in transit, its work track
  // the compute.
  double messages = 0, work = 0;
  for (const TrackEvent& event : plan.simulation.ranks[1].tracks)
    (event.track == TrackKind::kCompute ? work : messages) +=
        event.end_seconds - event.begin_seconds;
  EXPECT_NEAR(messages, 2 * kTransfer, 1e-12);
  EXPECT_NEAR(work, kWork / 2, 1e-12);
  // Only the first forward waits for its host; then the second rank waits for the value.
  const double forward = 2e-3, backward = 4e-3, update = 1e-3;
  EXPECT_NEAR(
      plan.simulation.step_seconds,
      10e-6 + forward + kTransfer + 2 * (forward + backward) + kTransfer + backward + update, 1e-9);
}

// The receiver's host cannot enqueue work before the sender's host has enqueued the send: 34 ms of
// launches follow the first 6 ms.
TEST(Launches, SecondRankStartsAfterFirstRankSends) {
  const Plan plan = Step{.launch = 1e-3, .ranks = 2, .micro_batches = 1}.plan();
  const TraceEvent& backward =
      *std::ranges::find(plan.simulation.ranks[1].events, Op::kBackward, &TraceEvent::op);
  const double host = 1e-3 * 2 * (kForward + kForward + kBackward);
  EXPECT_NEAR(backward.end_seconds, host + 4e-3 / (2 * kBackward), 1e-12);
}

// Rank 0 of two, two layers. The forward of a micro-batch keeps 2 x 300 saved bytes, the value
// between its layers (100) and the value to send (100); a backward allocates the gradient of the
// value between (100). In 1F1B the first two forwards and the last two backwards are segments of
// their own; all others are a backward and the following forward, which cannot reuse what the
// backward frees. Each received gradient (100) has a recorded address, to which the next step's
// gradient is copied, so one of these is allocated, too.
TEST(Launches, PoolsOfSegmentsAddUp) {
  const auto peak = [](RecordingPlan recording, int micro_batches) {
    return Step{.recording = recording, .ranks = 2, .micro_batches = micro_batches}
        .plan()
        .ledger[0];
  };
  for (const int micro_batches : {2, 8}) {
    const RankLedger performed = peak(RecordingPlan::kNever, micro_batches);
    const RankLedger recorded = peak(RecordingPlan::kAlways, micro_batches);
    const std::int64_t fixed = performed.timeline.front().bytes;
    const std::int64_t pools = std::int64_t{micro_batches} * (800 + 100) + 3 * 100;
    EXPECT_EQ(recorded.peak_bytes - fixed, pools) << micro_batches;
    EXPECT_EQ(recorded.at_peak[ByteKind::kPools], pools - (performed.peak_bytes - fixed));
    EXPECT_EQ(recorded.at_peak.total(), recorded.peak_bytes);
    EXPECT_EQ(recorded.at_peak.charged(), performed.at_peak.charged());
    std::int64_t most = 0;
    for (const MemoryPoint& point : recorded.timeline) most = std::max(most, point.bytes);
    EXPECT_EQ(most, recorded.peak_bytes);
  }
}

// One layer without weights is recorded, one fetched layer is performed action by action.
PlanRequest half_of_a_window(int performed, int micro_batches, RecordingPlan recording) {
  PlanRequest request =
      Step{.recording = recording, .ranks = 2, .micro_batches = micro_batches}.request();
  request.memory.states = request.memory.weights = request.memory.gradients = TierChoice::kHost;
  request.memory.window = 1;
  for (CostTable* costs : {&request.costs[Recompute::kNone], &request.costs[Recompute::kCheap]}) {
    for (const int stays : {1 - performed, 3 - performed}) {
      LayerCost& layer = costs->layers[stays];
      layer.weight_bytes = layer.gradient_bytes = layer.state_bytes = 0;
    }
  }
  return request;
}

// Rank 0 and one micro-batch. If the second layer is performed, the two segments of the first keep
// its saved bytes (300), its value (100) and the gradient of that value (100), which is received;
// the value to send has no recorded address. If the first layer is performed, the segments of the
// second keep its saved bytes (300), its value (100), the gradient that it computes (100), and
// recorded copies of the value that it reads and the gradient that it receives (100 each).
TEST(Launches, WindowedPipelineRecordsNoPlaceForSentValues) {
  for (const auto& [performed, each] : {std::pair(1, 500), std::pair(0, 700)}) {
    const auto pools = [p = performed](int micro_batches) {
      const Plan plan = make_plan(half_of_a_window(p, micro_batches, RecordingPlan::kAlways));
      EXPECT_FALSE(plan.recorded[0].empty());
      EXPECT_EQ(plan.ledger[0].at_peak.total(), plan.ledger[0].peak_bytes);
      return plan.ledger[0].pool_bytes;
    };
    EXPECT_EQ(pools(2), 2 * each) << performed;
    EXPECT_EQ(pools(8), 8 * each) << performed;
    const RankLedger recorded =
        make_plan(half_of_a_window(performed, 8, RecordingPlan::kAlways)).ledger[0];
    const RankLedger alone =
        make_plan(half_of_a_window(performed, 8, RecordingPlan::kNever)).ledger[0];
    EXPECT_GE(recorded.peak_bytes, alone.timeline.front().bytes + 8 * each);
    EXPECT_LE(recorded.peak_bytes, alone.peak_bytes + 8 * each);
  }
}

// One rank, one segment: the segment of a validation also holds the value between two layers and
// the one after it.
TEST(Launches, PoolsOfValidationsAddToThoseOfTraining) {
  PlanRequest request = Step{.recording = RecordingPlan::kAlways}.request();
  const RankLedger without = make_plan(request).ledger[0];
  for (const int shapes : {1, 2}) {
    request.validation_shapes = shapes;
    const RankLedger with = make_plan(request).ledger[0];
    EXPECT_EQ(with.at_peak[ByteKind::kPools], shapes * 2 * 100);
    EXPECT_EQ(with.peak_bytes, without.peak_bytes + shapes * 2 * 100);
    EXPECT_EQ(with.at_peak.charged(), without.at_peak.charged());
  }
  // Bytes of a forward that keeps no graph.
  request.validation_shapes = 1;
  request.costs[Recompute::kCheap].layers[3].no_grad_transient_bytes = 5000;
  EXPECT_EQ(make_plan(request).ledger[0].at_peak[ByteKind::kPools], 100 + 5000);
  request.recording = RecordingPlan::kNever;
  EXPECT_EQ(make_plan(request).ledger[0].at_peak[ByteKind::kPools], 0);
}

// The first layers of a rank have no weights to update. The segment of its update is enqueued
// nevertheless while the device runs actions without kernels.
TEST(Launches, CountSegmentWhoseFirstActionsHaveNoKernels) {
  PlanRequest request =
      Step{.segment = 0.1, .recording = RecordingPlan::kAlways, .ranks = 2}.request();
  const double all = make_plan(request).simulation.step_seconds;
  for (CostTable* costs : {&request.costs[Recompute::kNone], &request.costs[Recompute::kCheap]})
    for (const int layer : {0, 2}) costs->layers[layer].update_launches = 0;
  EXPECT_NEAR(make_plan(request).simulation.step_seconds, all - 0.5e-3, 1e-12);
}

TEST(Launches, AreEnqueuedOneByOneIfPoolsDoNotFit) {
  const std::int64_t performed = Step{.ranks = 2, .micro_batches = 8}.plan().ledger[0].peak_bytes;
  Step step{.recording = RecordingPlan::kIfItFits, .ranks = 2, .micro_batches = 8};
  EXPECT_FALSE(step.plan().recorded.empty());
  step.device_bytes = performed + 512;
  EXPECT_TRUE(step.plan().recorded.empty());
  step.recording = RecordingPlan::kAlways;
  try {
    step.plan();
    FAIL() << "it fits";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().fix, "set train.graph=auto");
  }
}

TEST(Launches, DecidedByAnotherProcessAreFollowed) {
  Step step{.recording = RecordingPlan::kIfItFits, .ranks = 2, .micro_batches = 8};
  const std::string recorded = decisions_text(step.plan());
  EXPECT_FALSE(follow_plan(step.request(), recorded).recorded.empty());
  step.recording = RecordingPlan::kNever;
  const std::string performed = decisions_text(step.plan());
  step.recording = RecordingPlan::kIfItFits;
  EXPECT_TRUE(follow_plan(step.request(), performed).recorded.empty());
}

// 3 x 1e9 operations per layer and micro-batch, two micro-batches, four layers, divided by the
// GPU's peak.
TEST(Utilisation, UsesDataSheetPeak) {
  PlanRequest request = Step().request();
  for (LayerCost& layer : request.costs[Recompute::kCheap].layers) layer.forward_flops = 1e9;
  request.costs[Recompute::kCheap].weight_element_bytes = 2;
  const Plan plan = make_plan(request);
  EXPECT_NEAR(flops_utilisation(plan), 3e9 * 2 * 4 / (989e12 * plan.simulation.step_seconds),
              1e-12);
  request.costs[Recompute::kCheap].weight_element_bytes =
      4;  // the data sheet's number is for 16 bit
  EXPECT_EQ(flops_utilisation(make_plan(request)), 0);
}

// Two replicas, on one GPU each or both on one, which then does twice the work.
TEST(Utilisation, CountsGpusInUse) {
  PlanRequest request = Step().request();
  for (LayerCost& layer : request.costs[Recompute::kCheap].layers) layer.forward_flops = 1e9;
  request.costs[Recompute::kCheap].weight_element_bytes = 2;
  request.mesh.axes[Axis::kData] = 2;
  request.micro_batch = 1;
  for (const int gpus : {2, 1}) {
    if (gpus == 1)
      request.costs[Recompute::kCheap].devices = shared_devices({{Axis::kData, 2}}, {0, 0});
    const Plan plan = make_plan(request);
    const double seconds = plan.simulation.step_seconds;
    EXPECT_NEAR(flops_utilisation(plan), 3e9 * 2 * 4 * 2 / (989e12 * gpus * seconds), 1e-12);
    const double rate = 2 * 2 / seconds;
    const std::string text = plan_text(plan);
    const std::string each = format_count(rate / 2) + " samples/s a GPU";
    EXPECT_NE(text.find("speed      " + format_count(rate) + " samples/s, "), std::string::npos)
        << text;
    EXPECT_EQ(text.find(each) != std::string::npos, gpus == 2) << text;
  }
}

TEST(GpuRates, UseNetworkIfAxisLeavesMachine) {
  const MachineProfile h100 = find_machine("h100");
  const AxisRates inside = gpu_axis_rates(
      h100, {{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}}, kThreadRates);
  EXPECT_EQ(inside[Axis::kPipeline], 450e9);
  EXPECT_EQ(inside[Axis::kData], 450e9);
  const AxisRates across = gpu_axis_rates(
      h100, {{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 4}}, kThreadRates);
  EXPECT_EQ(across[Axis::kTensor], 450e9);
  EXPECT_EQ(across[Axis::kData], 450e9);
  EXPECT_EQ(across[Axis::kPipeline], 50e9);
  EXPECT_EQ(gpu_axis_rates(h100, {{Axis::kTensor, 16}}, kThreadRates)[Axis::kTensor], 50e9);
  EXPECT_EQ(gpu_axis_rates({}, {{Axis::kTensor, 16}}, kThreadRates)[Axis::kTensor],
            kThreadRates[Axis::kTensor]);
}

}  // namespace
}  // namespace strata
