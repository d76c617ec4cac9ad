#include "strata/plan/search/planner.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/plan/example_models_test.h"
#include "strata/schedule/builders.h"

namespace strata {
namespace {

using enum ScheduleKind;
using enum RecomputeMode;

constexpr std::int64_t kMiB = 1 << 20;

// Eight blocks between an embedding and a head tied to it. The host has no memory.
PlanRequest request_for(const PipelineShape& shape, ScheduleKind schedule,
                        std::int64_t device_bytes = 0, RecomputeMode recompute = kCheap) {
  PlanRequest request;
  request.dataflow = chain(10);
  request.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {9}});
  const LayerCost block{.forward_seconds = 10e-3,
                        .backward_seconds = 20e-3,
                        .update_seconds = 1e-3,
                        .weight_bytes = 4 * kMiB,
                        .gradient_bytes = 4 * kMiB,
                        .state_bytes = 8 * kMiB,
                        .saved_bytes = 6 * kMiB,
                        .forward_transient_bytes = kMiB,
                        .backward_transient_bytes = 2 * kMiB};
  CostTable costs = equal_costs(request.dataflow, block, {.bytes = kMiB, .transfer_seconds = 1e-4});
  LayerCost& embedding = costs.layers[0];
  embedding.forward_seconds = embedding.backward_seconds = 1e-3;
  embedding.saved_bytes = 0;
  embedding.recomputable = false;
  LayerCost& head = costs.layers[9];
  head.weight_bytes = head.state_bytes = 0;
  head.replica_bytes = 4 * kMiB;
  request.costs[Recompute::kCheap] = costs;
  for (LayerCost& layer : costs.layers) layer.saved_bytes *= 2;
  request.costs[Recompute::kNone] = costs;
  set_shape(request, shape);
  request.schedule = schedule;
  request.memory = {.device = {device_bytes}, .host = {1}, .recompute = recompute};
  return request;
}

int recomputed(const Plan& plan) { return plan.decisions().recompute.size(); }

std::string fix_of(const PlanRequest& request) {
  try {
    make_plan(request);
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "plan.memory");
    return error.text().fix;
  }
  return "fits";
}

TEST(Plan, IsCompleteStepForEverySchedule) {
  for (const ScheduleKind kind : {kGpipe, k1f1b, kInterleaved}) {
    const int virtual_stages = kind == kInterleaved ? 2 : 1;
    const Plan plan = make_plan(request_for({3, 5, virtual_stages}, kind));
    EXPECT_EQ(plan.schedule().kind, kind);
    EXPECT_EQ(plan.decisions().partition.num_stages(), 3 * virtual_stages);
    EXPECT_EQ(plan.decisions().partition.bounds.back(), 10);
    EXPECT_EQ(recomputed(plan), 0);
    EXPECT_EQ(plan.ledger.size(), 3u);
    EXPECT_GT(plan.simulation.bubble, 0);
    EXPECT_LT(plan.simulation.bubble, 0.5);
    // No rank is faster than its share of the work.
    EXPECT_GT(plan.simulation.step_seconds, 5 * 9 * 30e-3 / 3);
  }
}

TEST(Plan, OneRankHasNoBubble) {
  const Plan plan = make_plan(request_for({1, 4}, k1f1b));
  EXPECT_NEAR(plan.simulation.bubble, 0, 1e-12);
  EXPECT_NEAR(plan.simulation.step_seconds, 4 * (9 * 30e-3 + 2e-3) + 10e-3, 1e-9);
}

TEST(Plan, ForwardOnlyHasNoBackwardOrUpdate) {
  const Plan plan = make_plan(request_for({2, 4}, kForward));
  for (const Program& program : plan.schedule().programs) {
    for (const Action& action : program) {
      EXPECT_NE(action.op, Op::kBackward);
      EXPECT_NE(action.op, Op::kUpdate);
    }
  }
}

TEST(Plan, RecomputeModesRecomputeDocumentedLayers) {
  const Plan none = make_plan(request_for({2, 8}, k1f1b, 0, kNone));
  const Plan cheap = make_plan(request_for({2, 8}, k1f1b, 0, kCheap));
  const Plan full = make_plan(request_for({2, 8}, k1f1b, 0, kFull));
  const Plan automatic = make_plan(request_for({2, 8}, k1f1b, 0, kAuto));
  EXPECT_GT(peak_bytes(none.ledger), peak_bytes(cheap.ledger));
  EXPECT_GT(peak_bytes(cheap.ledger), peak_bytes(full.ledger));
  EXPECT_EQ(recomputed(full), 9);       // all layers except the embedding
  EXPECT_EQ(recomputed(automatic), 0);  // without a budget no layer has to be recomputed
  EXPECT_EQ(automatic.simulation.step_seconds, cheap.simulation.step_seconds);
  EXPECT_LT(cheap.simulation.step_seconds, full.simulation.step_seconds);
}

TEST(Plan, AutoRecomputesMoreWithSmallerBudgetAndFits) {
  const std::int64_t roomy = peak_bytes(make_plan(request_for({2, 8}, kGpipe)).ledger);
  int last = 0;
  double last_seconds = 0;
  for (const double share : {1.0, 0.9, 0.75, 0.6}) {
    const auto device_bytes = static_cast<std::int64_t>(share * static_cast<double>(roomy));
    const Plan plan = make_plan(request_for({2, 8}, kGpipe, device_bytes, kAuto));
    EXPECT_LE(peak_bytes(plan.ledger), device_bytes);
    EXPECT_GE(recomputed(plan), last);
    EXPECT_GE(plan.simulation.step_seconds, last_seconds);
    last = recomputed(plan);
    last_seconds = plan.simulation.step_seconds;
  }
  EXPECT_GT(last, 0);
  EXPECT_LT(last, 9);
}

TEST(Plan, MovesLayersOffFullRankIfThatSuffices) {
  // Rank 0 of 1F1B holds one micro-batch more than rank 1; a slightly slower cut fits.
  const Plan fastest = make_plan(request_for({2, 8}, k1f1b));
  const std::int64_t device_bytes = peak_bytes(fastest.ledger) - 2 * kMiB;
  const Plan fitting = make_plan(request_for({2, 8}, k1f1b, device_bytes));
  EXPECT_LE(peak_bytes(fitting.ledger), device_bytes);
  EXPECT_NE(fitting.decisions().partition, fastest.decisions().partition);
  EXPECT_GE(fitting.simulation.step_seconds, fastest.simulation.step_seconds);
}

TEST(PlanRefusal, ShowsBytesOfEveryRank) {
  try {
    PlanRequest request = request_for({2, 8}, kGpipe, 100 * kMiB);
    request.memory.states = TierChoice::kDevice;
    make_plan(request);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "plan.memory");
    EXPECT_EQ(error.text().where, "2 ranks, gpipe, recompute cheap");
    EXPECT_EQ(error.text().expected, "at most 100.00 MiB on every rank");
    for (const std::string part :
         {"weights", "gradients", "states", "saved", "MiB on rank", "budget"}) {
      EXPECT_NE(error.text().got.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(exit_code(error), 2);
  }
}

// Applies the settings of a fix to the request.
PlanRequest applied(PlanRequest request, const std::string& fix) {
  const auto value_of = [&](const std::string& name) {
    const std::size_t at = fix.find(name + "=");
    if (at == std::string::npos) return std::string();
    const std::size_t begin = at + name.size() + 1;
    return fix.substr(begin, fix.find(' ', begin) - begin);
  };
  if (!value_of("memory.recompute").empty()) request.memory.recompute = kAuto;
  if (const auto text = value_of("memory.device"); !text.empty()) {
    request.memory.device = parse_bytes(text);
  }
  if (!value_of("mesh.schedule").empty()) request.schedule = k1f1b;
  if (const auto text = value_of("mesh.pp"); !text.empty())
    request.mesh.axes[Axis::kPipeline] = std::stoi(text);
  if (const auto text = value_of("mesh.virtual_stages"); !text.empty()) {
    request.virtual_stages = std::stoi(text);
  }
  return request;
}

TEST(PlanRefusal, NamesNearestSettingsThatFit) {
  struct Case {
    ScheduleKind schedule;
    RecomputeMode recompute;
    std::int64_t mebibytes;
    std::string fix;
  };
  // Rank 0 needs about 84 MiB before its first action.
  const Case cases[] = {
      {kGpipe, kCheap, 300, "set memory.recompute=auto"},
      {kGpipe, kFull, 130, "set mesh.schedule=1f1b"},
      {kGpipe, kCheap, 130, "set mesh.schedule=1f1b and memory.recompute=auto"},
      {kInterleaved, kCheap, 102,
       "set mesh.schedule=1f1b and mesh.virtual_stages=1 and memory.recompute=auto"},
  };
  for (const Case& c : cases) {
    const PipelineShape shape{2, 16, c.schedule == kInterleaved ? 2 : 1};
    const PlanRequest request = request_for(shape, c.schedule, c.mebibytes * kMiB, c.recompute);
    const std::string fix = fix_of(request);
    EXPECT_EQ(fix, c.fix);
    EXPECT_EQ(fix_of(applied(request, fix)), "fits") << fix;
  }
}

TEST(PlanRefusal, ProposesSmallerMicroBatchesOnlyIfSizeIsKnown) {
  PlanRequest request = request_for({2, 4}, k1f1b, 95 * kMiB, kAuto);
  const std::string without = fix_of(request);
  EXPECT_EQ(without.find("train.micro_batch"), std::string::npos) << without;
  request.micro_batch = 8;
  EXPECT_EQ(fix_of(request).rfind("set train.micro_batch=", 0), 0u) << fix_of(request);
}

TEST(PlanRefusal, ProposesMoreRanksIfWeightsDoNotFit) {
  const PlanRequest request = request_for({2, 4}, k1f1b, 60 * kMiB, kAuto);
  const std::string fix = fix_of(request);
  EXPECT_EQ(fix.rfind("set mesh.pp=", 0), 0u) << fix;
  EXPECT_EQ(fix_of(applied(request, fix)), "fits");
}

TEST(PlanRefusal, NamesSmallestBudgetIfNothingFits) {
  PlanRequest request = request_for({2, 4}, k1f1b, 5 * kMiB);
  const std::string fix = fix_of(request);
  EXPECT_EQ(fix.rfind("set memory.recompute=auto and memory.device=", 0), 0u) << fix;
  PlanRequest enough = applied(request, fix);
  EXPECT_EQ(fix_of(enough), "fits");
  enough.memory.device.count -= enough.memory.device.count / 64;
  EXPECT_NE(fix_of(enough), "fits");
}

// Another process with other measured seconds follows the decisions, even if it would decide
// otherwise.
TEST(Plan, IsFollowedByProcessesWithOtherMeasurements) {
  for (const ReduceMode reduce : {ReduceMode::kOnce, ReduceMode::kEach}) {
    PlanRequest request = request_for({2, 8}, kGpipe, 0, RecomputeMode::kAuto);
    request.mesh.axes[Axis::kData] = 2;
    request.mesh.zero = {.stage = 2, .reduce = reduce};
    const std::int64_t roomy = peak_bytes(make_plan(request).ledger);
    request.memory.device.count = roomy * 6 / 10;
    const Plan plan = make_plan(request);
    ASSERT_GT(recomputed(plan), 0);
    ASSERT_EQ(plan.decisions().zero.reduce, reduce);
    PlanRequest other = request;
    other.costs[Recompute::kCheap].layers[3].forward_seconds *= 50;
    EXPECT_NE(make_plan(other).decisions().partition, plan.decisions().partition);
    const Plan followed = follow_plan(other, decisions_text(plan));
    EXPECT_EQ(followed.decisions().partition, plan.decisions().partition);
    EXPECT_EQ(followed.decisions().recompute, plan.decisions().recompute);
    EXPECT_EQ(followed.decisions().zero, plan.decisions().zero);
    EXPECT_EQ(followed.reduce_reason, plan.reduce_reason);
    EXPECT_EQ(followed.schedule().programs, plan.schedule().programs);
    EXPECT_GT(followed.simulation.step_seconds, plan.simulation.step_seconds);
  }
}

TEST(Plan, FitsHundredLayersOnSixteenRanksIntoTightBudget) {
  PlanRequest request;
  request.dataflow = chain(98);
  request.costs[Recompute::kCheap] = equal_costs(
      request.dataflow,
      {.forward_seconds = 1, .backward_seconds = 2, .weight_bytes = 10, .saved_bytes = 10},
      {.bytes = 1});
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap];
  set_shape(request, {16, 64});
  request.memory = {.device = {700}, .recompute = kAuto};
  const Plan plan = make_plan(request);
  EXPECT_LE(peak_bytes(plan.ledger), 700);
  EXPECT_GT(recomputed(plan), 0);
}

// As in partition_test.cpp: an algorithm quadratic in layers would exceed the time limit.
TEST(Planner, PlansHundredThousandLayers) {
  const auto request_of = [](int layers) {
    PlanRequest request = request_for({.ranks = 4, .micro_batches = 8}, k1f1b);
    request.dataflow = chain(layers);
    request.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {layers - 1}});
    const LayerCost block = request.costs[Recompute::kCheap].layers[5];
    request.costs[Recompute::kCheap] = request.costs[Recompute::kNone] =
        equal_costs(request.dataflow, block, {.bytes = kMiB, .transfer_seconds = 1e-4});
    return request;
  };
  const Plan plan = make_plan(request_of(100'000));
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(plan.decisions().partition.layers(stage).size(), 25'000);

  // A budget that makes every rank recompute a part of its layers.
  constexpr int kLayers = 10'000;
  PlanRequest request = request_of(kLayers);
  set_shape(request, {.ranks = 2, .micro_batches = 1});
  const std::int64_t peak = peak_bytes(make_plan(request).ledger);
  request.memory = {.device = {peak - peak / 10}, .recompute = kAuto};
  const Plan tight = make_plan(request);
  EXPECT_GT(recomputed(tight), 1000);
  EXPECT_LT(recomputed(tight), kLayers);
}

PlanRequest request_of_halves(double weight_seconds) {
  PlanRequest request;
  request.dataflow = chain(4);
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap] =
      equal_costs(request.dataflow,
                  {.forward_seconds = 1,
                   .backward_seconds = 2,
                   .weight_seconds = weight_seconds,
                   .saved_bytes = 100,
                   .kept_bytes = 90},
                  {.bytes = 8});
  request.schedule = kZb;
  set_shape(request, {4, 12});
  return request;
}

TEST(Planner, OtherProcessesFollowASearchedOrder) {
  const PlanRequest ours = request_of_halves(1), theirs = request_of_halves(0.1);
  const Plan plan = make_plan(ours);
  const Plan followed = follow_plan(theirs, decisions_text(plan));
  EXPECT_EQ(followed.decisions().order->programs, plan.decisions().order->programs);
  EXPECT_NE(make_plan(theirs).decisions().order->programs, plan.decisions().order->programs);
}

// A run that resumes with more micro-batches, or with another schedule, has no order for them.
TEST(Planner, SearchesAnOrderThatTheDecisionsLack) {
  PlanRequest more = request_of_halves(1);
  const std::string decided = decisions_text(make_plan(more));
  set_shape(more, {4, 20});
  EXPECT_EQ(follow_plan(more, decided).decisions().order->num_micro_batches, 20);
  PlanRequest plain = request_of_halves(1);
  plain.schedule = k1f1b;
  const Plan searched = follow_plan(request_of_halves(1), decisions_text(make_plan(plain)));
  EXPECT_EQ(searched.decisions().order->num_micro_batches, 12);
}

TEST(Planner, OtherProcessesFollowAnOrderOfAFile) {
  PlanRequest ours = request_of_halves(1), theirs = ours;
  ours.schedule = theirs.schedule = kFile;
  ours.order = std::make_shared<const Schedule>(zb_h2({.ranks = 4, .micro_batches = 12}));
  theirs.order = std::make_shared<const Schedule>(zb_h1({.ranks = 4, .micro_batches = 12}));
  const std::string decided = decisions_text(make_plan(ours));
  EXPECT_EQ(follow_plan(theirs, decided).decisions().order->programs, ours.order->programs);
  // A run that resumes reads its own file.
  const Plan resumed = follow_plan(theirs, decisions_to_resume(decided, kFile));
  EXPECT_EQ(resumed.decisions().order->programs, theirs.order->programs);
}

}  // namespace
}  // namespace strata
