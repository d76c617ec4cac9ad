#include "strata/schedule/execute.h"

#include "strata/base/errors.h"

namespace strata {

bool Execution::step() {
  if (done()) return false;
  const Action& action = (*program_)[position_];
  if (!machine_->ready(action)) return false;
  const TraceSpan span(trace_, action);
  machine_->perform(action);
  ++position_;
  return true;
}

bool Execution::advance() {
  const std::size_t start = position_;
  while (step()) {
  }
  return position_ != start;
}

void execute(const Program& program, Machine& machine, TraceLog* trace) {
  Execution execution(program, machine, trace);
  execution.advance();
  if (execution.done()) return;
  const std::size_t position = execution.position();
  throw InternalError(
      {.operation = "schedule.execute",
       .where = "position " + std::to_string(position) + ": " + to_string(program[position]),
       .what = "the machine is not ready and cannot wait",
       .expected = "a machine that waits inside perform()",
       .got = "ready() returned false",
       .fix = "advance such machines with Execution"});
}

}  // namespace strata
