#include "strata/schedule/step_schedule.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/schedule/example_models_test.h"

namespace strata::schedule {
namespace {

StepRequest request_for(const std::string& name) {
  return {.schedule = name, .shape = {.ranks = 2, .micro_batches = 4}, .recompute = {1, 1, 1, 1}};
}

int count(const Schedule& schedule, Op op) {
  int actions = 0;
  for (const Program& program : schedule.programs) {
    for (const Action& action : program) actions += action.op == op;
  }
  return actions;
}

TEST(StepSchedule, OfATrainingStepIsWholeAndOfForwardsHasForwardsAlone) {
  const Dataflow dataflow = chain_with_skip_and_tie(4);
  const Schedule training = make_schedule(request_for("1f1b"), dataflow, equal_stages(2, 2));
  EXPECT_EQ(count(training, Op::kRecompute), 16);
  EXPECT_EQ(count(training, Op::kUpdate), 4);
  EXPECT_EQ(count(training, Op::kSendTiedGradient), 1);
  const Schedule forward = make_schedule(request_for("forward"), dataflow, equal_stages(2, 2));
  EXPECT_EQ(count(forward, Op::kForward), 8);
  EXPECT_EQ(count(forward, Op::kRecompute) + count(forward, Op::kUpdate), 0);
}

// GPipe's order under the name of 1F1B: legal, but it holds more than 1F1B promises.
TEST(StepSchedule, RefusesMoreActivationsThanItsNamePromises) {
  const Dataflow dataflow = chain(4);
  const Partition partition = equal_stages(2, 2);
  const Schedule gpipe = lowered_schedule(request_for("gpipe"), dataflow, partition);
  check_schedule(gpipe, request_for("gpipe"), dataflow, partition);
  try {
    check_schedule(gpipe, request_for("1f1b"), dataflow, partition);
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().what, "too many activations are in flight");
  }
}

}  // namespace
}  // namespace strata::schedule
