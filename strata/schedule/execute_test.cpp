#include "strata/schedule/execute.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "strata/base/errors.h"
#include "strata/schedule/builders.h"

namespace strata {
namespace {

class Recorder : public Machine {
 public:
  bool ready(const Action&) override { return performed.size() < limit; }
  void perform(const Action& action) override {
    if (action == poison) throw std::runtime_error("poisoned");
    performed.push_back(action);
  }
  std::size_t limit = 1000;
  Action poison{.op = Op::kUpdate};
  Program performed;
};

Program example() { return gpipe({.ranks = 1, .micro_batches = 3}).programs[0]; }

TEST(Execute, PerformsEveryActionOnceInOrder) {
  Recorder machine;
  execute(example(), machine);
  EXPECT_EQ(machine.performed, example());
}

TEST(Execute, TracesOneSpanPerAction) {
  Recorder machine;
  TraceLog trace;
  Program program = example();
  program[4].layers = {3, 5};
  execute(program, machine, &trace);
  ASSERT_EQ(trace.events().size(), program.size());
  double last = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const TraceEvent& event = trace.events()[i];
    EXPECT_EQ(event.op, program[i].op);
    EXPECT_EQ(event.stage, program[i].stage);
    EXPECT_EQ(event.micro_batch, program[i].micro_batch);
    EXPECT_LE(last, event.begin_seconds);
    EXPECT_LE(event.begin_seconds, event.end_seconds);
    last = event.end_seconds;
  }
  EXPECT_EQ(trace.events()[3].first_layer, -1);
  EXPECT_EQ(trace.events()[4].first_layer, 3);
}

TEST(Execute, ThrowsIfMachineIsNotReady) {
  Recorder machine;
  machine.limit = 2;
  try {
    execute(example(), machine);
    FAIL() << "accepted";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.text().where, "position 2: F s0 m2");
  }
}

TEST(Execution, StopsAtUnreadyActionAndResumes) {
  Recorder machine;
  machine.limit = 2;
  const Program program = example();
  Execution execution(program, machine);
  EXPECT_TRUE(execution.advance());
  EXPECT_EQ(execution.position(), 2u);
  EXPECT_FALSE(execution.advance());
  machine.limit = 6;
  EXPECT_TRUE(execution.advance());
  EXPECT_TRUE(execution.done());
  EXPECT_FALSE(execution.advance());
  EXPECT_EQ(machine.performed, program);
}

TEST(Execution, PositionNamesActionThatThrew) {
  Recorder machine;
  const Program program = example();
  machine.poison = program[3];
  Execution execution(program, machine);
  EXPECT_THROW(execution.advance(), std::runtime_error);
  EXPECT_EQ(execution.position(), 3u);
}

}  // namespace
}  // namespace strata
