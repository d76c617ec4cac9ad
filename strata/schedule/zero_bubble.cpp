// Schedules with one stage a rank whose backwards run in halves. A rank runs forwards and first
// halves in turn, like 1F1B. Second halves stay behind by a fixed number of micro-batches, which
// grows with the rank: a later rank begins its backwards earlier and waits longer at the end, so it
// needs more work for the end.
#include <algorithm>

#include "strata/schedule/empty_schedule.h"

namespace strata {
namespace {

// `warm_up`: forwards before the first backward; `behind`: second halves that wait.
Program alternate(int rank, int micro_batches, int warm_up, int behind) {
  Program program;
  int weights = 0;
  const auto add = [&](Op op, int micro_batch) {
    program.push_back({.op = op, .stage = rank, .micro_batch = micro_batch});
  };
  for (int k = 0; k < micro_batches + warm_up; ++k) {
    if (k < micro_batches) add(Op::kForward, k);
    if (k < warm_up) continue;
    const int inputs = k - warm_up;
    add(Op::kBackwardInput, inputs);
    if (inputs >= behind) add(Op::kBackwardWeight, weights++);
  }
  while (weights < micro_batches) add(Op::kBackwardWeight, weights++);
  return program;
}

}  // namespace

Schedule zb_h1(PipelineShape shape) {
  Schedule schedule = empty_schedule(ScheduleKind::kZbH1, shape);
  for (int rank = 0; rank < shape.ranks; ++rank)
    schedule.programs[rank] = alternate(
        rank, shape.micro_batches, std::min(shape.micro_batches, shape.ranks - rank - 1), rank);
  return schedule;
}

Schedule zb_h2(PipelineShape shape) {
  Schedule schedule = empty_schedule(ScheduleKind::kZbH2, shape);
  for (int rank = 0; rank < shape.ranks; ++rank)
    schedule.programs[rank] =
        alternate(rank, shape.micro_batches,
                  std::min(shape.micro_batches, 2 * (shape.ranks - rank - 1)), 2 * rank);
  return schedule;
}

}  // namespace strata
