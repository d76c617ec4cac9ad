/// Runs programs. This is the only interpreter; machines differ (real stages, a simulated clock).
///
/// Execution advances a machine that can answer "not ready" (the simulator, the validator).
/// execute() runs a machine that waits inside perform() (a real rank) to the end.
///
/// Threads  an Execution belongs to one thread.
/// Errors   passes on every exception of the machine; position() tells which action threw.
#pragma once

#include <cstddef>

#include "strata/schedule/action.h"
#include "strata/schedule/trace.h"

namespace strata {

class Machine {
 public:
  virtual ~Machine() = default;
  /// Returns false if the action cannot start yet because its message has not been sent. Real
  /// machines wait inside perform() instead.
  virtual bool ready(const Action&) { return true; }
  virtual void perform(const Action& action) = 0;
};

/// A program and the position of its next action.
class Execution {
 public:
  Execution(const Program& program, Machine& machine, TraceLog* trace = nullptr)
      : program_(&program), machine_(&machine), trace_(trace) {}

  /// Performs the next action. Returns false if it is not ready or the program has ended.
  bool step();
  /// Performs actions until one is not ready or the program ends. Returns true if it performed any.
  bool advance();
  bool done() const { return position_ == program_->size(); }
  std::size_t position() const { return position_; }  ///< index of the next action

 private:
  const Program* program_;
  Machine* machine_;
  TraceLog* trace_;
  std::size_t position_ = 0;
};

/// Performs the whole program.
/// Errors  InternalError if the machine is not ready for an action.
void execute(const Program& program, Machine& machine, TraceLog* trace = nullptr);

}  // namespace strata
