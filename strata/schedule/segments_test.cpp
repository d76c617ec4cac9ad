#include "strata/schedule/segments.h"

#include <gtest/gtest.h>

#include "strata/layout/example_models_test.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

StepPlan plan_of(StepDecisions decisions) {
  const Dataflow dataflow = chain_with_skip_and_tie(4);
  return StepPlan(dataflow, LayerSet::all(4), std::move(decisions));
}

std::vector<Segment> segments(const StepPlan& plan, const Program& program, LayerSet also = {}) {
  return segments_of(plan, program, performed_layers(plan, program, std::move(also)));
}

// Every position is either in one segment or performed by the host, and no two segments are
// adjacent.
void expect_division(const StepPlan& plan, const Program& program) {
  const LayerSet performed = performed_layers(plan, program);
  std::vector<bool> inside(program.size(), false);
  std::size_t end = 0;
  for (const Segment& segment : segments_of(plan, program, performed)) {
    EXPECT_LT(segment.begin, segment.end);
    EXPECT_TRUE(end == 0 ? true : segment.begin > end);
    end = segment.end;
    for (std::size_t i = segment.begin; i < segment.end; ++i) inside[i] = true;
  }
  for (std::size_t i = 0; i < program.size(); ++i)
    EXPECT_EQ(inside[i], why_performed(plan, performed, program[i]) == nullptr)
        << to_string(program[i]);
}

TEST(Segments, SingleRankStepIsOneSegment) {
  const StepPlan plan = plan_of({.partition = equal_stages(1, 4), .recompute = LayerSet::all(4)});
  const Program& program = plan.training(3).programs[0];
  EXPECT_EQ(segments(plan, program), (std::vector<Segment>{{0, program.size()}}));
  const Program& evaluation = plan.evaluation(3).programs[0];
  EXPECT_EQ(segments(plan, evaluation), (std::vector<Segment>{{0, evaluation.size()}}));
}

TEST(Segments, EndAtMessagesBetweenRanks) {
  const StepPlan plan = plan_of({.partition = equal_stages(2, 2)});
  for (const Program& program : plan.training(2).programs) {
    expect_division(plan, program);
    EXPECT_GT(segments(plan, program).size(), 2u);
    for (const Segment& segment : segments(plan, program))
      for (std::size_t i = segment.begin; i < segment.end; ++i)
        EXPECT_FALSE(is_send(program[i].op) || is_receive(program[i].op) ||
                     program[i].op == Op::kReduceNormAndLoss);
    for (const Action& action : program)
      if (is_send(action.op) || is_receive(action.op))
        EXPECT_STREQ(why_performed(plan, {}, action), "it is a message to another rank");
  }
}

TEST(Segments, EndAtGradientExchangeOfReplicas) {
  const StepPlan plan =
      plan_of({.mesh = {{Axis::kData, 2}}, .partition = equal_stages(1, 4), .zero = {.stage = 1}});
  const Program& program = plan.training(2).programs[0];
  expect_division(plan, program);
  for (const Segment& segment : segments(plan, program))
    for (std::size_t i = segment.begin; i < segment.end; ++i)
      EXPECT_TRUE(program[i].op != Op::kReduceGradients && program[i].op != Op::kAwaitGradients &&
                  program[i].op != Op::kUpdate && program[i].op != Op::kGatherWeights)
          << to_string(program[i]);
}

// Fetched weights have no fixed address that could be recorded.
TEST(Segments, ExcludeLayersFetchedFromPeersOrHost) {
  const StepPlan sharded =
      plan_of({.mesh = {{Axis::kData, 2}}, .partition = equal_stages(1, 4), .zero = {.stage = 3}});
  const Program& program = sharded.training(2).programs[0];
  const LayerSet performed = performed_layers(sharded, program);
  for (const Action& action : program)
    if (action.op == Op::kForward)
      EXPECT_EQ(why_performed(sharded, performed, action) != nullptr,
                performed.has(action.layers.begin));
  EXPECT_TRUE(performed.has(1));  // the first and last layers and ties stay whole
  StepDecisions tiers{.partition = equal_stages(1, 4), .recompute = LayerSet::all(4)};
  tiers.tiers.layers = std::vector(4, LayerTiers{});
  tiers.tiers.layers[2].activations = Tier::kHost;
  const StepPlan offloaded = plan_of(tiers);
  const Program& offloads = offloaded.training(2).programs[0];
  expect_division(offloaded, offloads);
  EXPECT_TRUE(performed_layers(offloaded, offloads).has(2));
}

// A tied weight is at its owner's address.
TEST(Segments, ExcludeLayersThatUseTiedWeightOfFetchedLayer) {
  const Tie tie = chain_with_skip_and_tie(4).ties.at(0);
  for (const LayerTiers& tiers :
       {LayerTiers{.weights = Tier::kHost, .gradients = Tier::kHost, .states = Tier::kHost},
        LayerTiers{.gradients = Tier::kHost, .states = Tier::kHost}}) {
    StepDecisions decisions{.partition = equal_stages(1, 4)};
    decisions.tiers.layers = std::vector(4, LayerTiers{});
    decisions.tiers.layers[tie.owner] = tiers;
    const StepPlan plan = plan_of(decisions);
    const LayerSet performed = performed_layers(plan, plan.training(2).programs[0]);
    EXPECT_TRUE(performed.has(tie.owner));
    for (const int user : tie.users) EXPECT_TRUE(performed.has(user));
  }
}

// A backward needs what its forward saved, on the host or at recorded addresses.
TEST(Segments, IncludeAllActionsOfLayerOrNone) {
  const StepPlan plan = plan_of({.partition = equal_stages(1, 4)});
  const Program& program = plan.training(2).programs[0];
  const LayerSet performed = performed_layers(plan, program, {3});
  EXPECT_TRUE(performed.has(3));
  for (const Action& action : program) {
    bool one = false, all = true;
    for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
      one = one || performed.has(layer);
      all = all && performed.has(layer);
    }
    if (action.op == Op::kForward || action.op == Op::kBackward) {
      EXPECT_TRUE(!one || all) << to_string(action);
      EXPECT_EQ(why_performed(plan, performed, action) != nullptr, one);
    }
  }
}

TEST(Segments, ExcludeLayersOfTensorParallelRanks) {
  const StepPlan plan = plan_of({.mesh = {{Axis::kTensor, 2}}, .partition = equal_stages(1, 4)});
  const Program& program = plan.training(2).programs[0];
  for (const Segment& segment : segments(plan, program))
    for (std::size_t i = segment.begin; i < segment.end; ++i)
      EXPECT_TRUE(program[i].op != Op::kForward && program[i].op != Op::kBackward);
}

TEST(Segments, ExcludeActionsThatCallerPerforms) {
  const StepPlan plan = plan_of({.partition = equal_stages(1, 4)});
  const Program& program = plan.training(1).programs[0];
  const auto keeps_norm = [](const Action& action) { return action.op == Op::kReduceNormAndLoss; };
  const std::vector<Segment> parts =
      segments_of(plan, program, performed_layers(plan, program), keeps_norm);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(program[parts[0].end].op, Op::kReduceNormAndLoss);
  EXPECT_EQ(parts[1].begin, parts[0].end + 1);
}

}  // namespace
}  // namespace strata
