/// Interprets programs. The only interpreter: machines differ (real stages, a clock), this does
/// not.
///
/// A machine that can say "not yet" (the simulator, the validator) is advanced with Execution; one
/// that waits by itself (a real rank) is run to the end by execute().
///
/// Threads  an Execution belongs to one thread.
/// Errors   whatever the machine throws passes through; position() says where.
#pragma once

#include <cstddef>

#include "strata/schedule/action.h"
#include "strata/schedule/trace.h"

namespace strata {

class Machine {
 public:
  virtual ~Machine() = default;
  /// False: the action cannot start yet (its message has not been sent). Real machines wait inside
  /// perform() instead.
  virtual bool ready(const Action&) { return true; }
  virtual void perform(const Action& action) = 0;
};

/// A program half-way.
class Execution {
 public:
  Execution(const Program& program, Machine& machine, TraceLog* trace = nullptr)
      : program_(&program), machine_(&machine), trace_(trace) {}

  /// Performs the next action; false if it isn't ready, or at the end.
  bool step();
  /// Performs actions until the end or until one isn't ready; true if any was performed.
  bool advance();
  bool done() const { return position_ == program_->size(); }
  std::size_t position() const { return position_; }  ///< of the next action

 private:
  const Program* program_;
  Machine* machine_;
  TraceLog* trace_;
  std::size_t position_ = 0;
};

/// Performs the whole program. InternalError if the machine isn't ready somewhere.
void execute(const Program& program, Machine& machine, TraceLog* trace = nullptr);

}  // namespace strata
