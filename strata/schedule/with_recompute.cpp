#include "strata/base/errors.h"
#include "strata/schedule/passes.h"

namespace strata::schedule {
namespace {

void append_segments(Program& program, Action backward, const std::vector<char>& recompute) {
  const int first = backward.layers.begin;
  STRATA_CHECK(backward.layers.end <= static_cast<int>(recompute.size()),
               "schedule.with_recompute");
  for (int end = backward.layers.end; end > first;) {
    int begin = end - 1;
    const bool again = recompute[begin] != 0;
    while (!again && begin > first && !recompute[begin - 1]) --begin;
    backward.layers = {begin, end};
    if (again) {
      Action forward_again = backward;
      forward_again.op = Op::kRecompute;
      program.push_back(forward_again);
    }
    program.push_back(backward);
    end = begin;
  }
}

}  // namespace

Schedule with_recompute(Schedule schedule, const std::vector<char>& recompute) {
  for (Program& program : schedule.programs) {
    Program split;
    for (const Action& action : program) {
      if (action.op == Op::kBackward) {
        append_segments(split, action, recompute);
      } else {
        split.push_back(action);
      }
    }
    program = std::move(split);
  }
  return schedule;
}

}  // namespace strata::schedule
