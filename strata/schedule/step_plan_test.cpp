#include "strata/schedule/step_plan.h"

#include <gtest/gtest.h>

#include <thread>

#include "strata/base/errors.h"
#include "strata/layout/example_models_test.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

StepPlan plan_of(StepDecisions decisions, const Dataflow& dataflow = chain_with_skip_and_tie(4)) {
  return StepPlan(dataflow, LayerSet::all(dataflow.num_layers), std::move(decisions));
}

int count(const Schedule& schedule, Op op) {
  int actions = 0;
  for (const Program& program : schedule.programs) {
    for (const Action& action : program) actions += action.op == op;
  }
  return actions;
}

TEST(StepPlan, TrainsWholeStepsAndEvaluatesForwardsOnly) {
  const StepPlan plan = plan_of({.partition = equal_stages(2, 2), .recompute = LayerSet::all(4)});
  const Schedule& training = plan.training(4);
  EXPECT_EQ(count(training, Op::kRecompute), 16);
  EXPECT_EQ(count(training, Op::kUpdate), 4);
  EXPECT_EQ(count(training, Op::kSendTiedGradient), 1);
  const Schedule& evaluation = plan.evaluation(4);
  EXPECT_EQ(count(evaluation, Op::kForward), 8);
  EXPECT_EQ(count(evaluation, Op::kRecompute) + count(evaluation, Op::kUpdate), 0);
}

TEST(StepPlan, BuildsProgramsOncePerCountForAllCopiesAndRanks) {
  const StepPlan plan = plan_of({.partition = equal_stages(2, 2)});
  const StepPlan copy = plan;
  const Schedule* proposed = &plan.proposed(3);
  std::vector<const Schedule*> seen(8);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < seen.size(); ++rank)
    ranks.emplace_back([&, rank] { seen[rank] = &copy.training(3); });
  for (std::thread& rank : ranks) rank.join();
  for (const Schedule* schedule : seen) EXPECT_EQ(schedule, proposed);
  EXPECT_EQ(plan.training(2).num_micro_batches, 2);
  EXPECT_EQ(&plan.training(3), proposed);
}

TEST(StepPlan, PartitionAloneIsPipelineWithOneRankPerStage) {
  EXPECT_EQ(plan_of({}).decisions().partition, (Partition{{0, 4}}));
  const StepPlan plan = plan_of({.schedule = ScheduleKind::kInterleaved,
                                 .virtual_stages = 2,
                                 .partition = equal_stages(4, 1)});
  EXPECT_EQ(plan.decisions().mesh, (Mesh{{Axis::kPipeline, 2}}));
  EXPECT_EQ(plan.pipeline_rank(2), 0);
  EXPECT_EQ(plan.pipeline_rank(3), 1);
  EXPECT_THROW(plan_of({.mesh = {{Axis::kPipeline, 3}}, .partition = equal_stages(2, 2)}),
               InternalError);
  EXPECT_THROW(plan_of({.partition = equal_stages(2, 1)}), InternalError);
}

// 1F1B with two stages per rank is rejected at every request.
TEST(StepPlan, RejectsWhatBuildersReject) {
  const StepPlan plan = plan_of({.virtual_stages = 2, .partition = equal_stages(4, 1)});
  for (int i = 0; i < 2; ++i) EXPECT_THROW(plan.training(2), UserError);
}

// No planner builds such a dataflow, but a caller could pass one.
TEST(StepPlan, ChecksProgramsToRunButNotProposals) {
  Dataflow dataflow = chain(4);
  dataflow.values[1].consumers = {2, 2};  // its gradient is sent twice
  const StepPlan plan = plan_of({.partition = equal_stages(2, 2)}, dataflow);
  EXPECT_EQ(plan.proposed(2).num_micro_batches, 2);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(plan.training(2), UserError);
  EXPECT_THROW(plan_of({.partition = equal_stages(2, 2)}, dataflow).training(3), UserError);
}

// GPipe's order labelled as 1F1B: legal, but it holds more activations than 1F1B allows.
TEST(StepPlan, RejectsMoreActivationsThanKindAllows) {
  const Dataflow dataflow = chain(4);
  const Partition partition = equal_stages(2, 2);
  const PipelineShape shape{.ranks = 2, .micro_batches = 4};
  const Schedule schedule = lower(gpipe(shape), dataflow, partition, {});
  const auto check_as = [&](ScheduleKind kind) {
    ValidateOptions options;
    for (int rank = 0; rank < 2; ++rank)
      options.in_flight_bound.push_back(in_flight_bound(kind, shape, rank));
    validate(schedule, dataflow, partition, options);
  };
  check_as(ScheduleKind::kGpipe);
  try {
    check_as(ScheduleKind::k1f1b);
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().what, "too many activations are in flight");
  }
}

}  // namespace
}  // namespace strata
