// All builders share one pattern. A rank runs the forwards of its stages in groups of
// micro-batches: the first stage for every micro-batch of the group, then the second stage, and so
// on. Backwards run the same way from the last stage to the first. The n-th backward directly
// follows forward n + warm_up. GPipe, 1F1B and interleaved 1F1B differ only in the group size and
// the length of the warm-up.
#include "strata/schedule/builders.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

struct Order {
  // micro-batches that run through one stage before the rank starts its next stage
  int group = 1;
  // forwards before the first backward; a larger number than there are forwards means all
  int warm_up = 0;
  bool backward = true;  // false: forwards only
};

void check_shape(ScheduleKind kind, PipelineShape shape) {
  for (const auto& [what, count] :
       {std::pair{"ranks", shape.ranks}, std::pair{"micro-batches", shape.micro_batches},
        std::pair{"virtual stages", shape.virtual_stages}}) {
    if (count >= 1) continue;
    throw UserError({.operation = "schedule.build",
                     .where = name_of(kind),
                     .what = std::string("the number of ") + what + " is too small",
                     .expected = "1 or more",
                     .got = std::to_string(count),
                     .fix = std::string("set the number of ") + what + " to 1 or more"});
  }
}

Program lay_out(PipelineShape shape, int rank, const Order& order) {
  // An incomplete last group is laid out as a full one and the surplus micro-batches are dropped.
  // Dropping a whole micro-batch from all ranks keeps a legal order legal.
  const int groups = (shape.micro_batches + order.group - 1) / order.group;
  const int per_group = order.group * shape.virtual_stages;
  const int total = groups * per_group;
  const int warm_up = std::min(order.warm_up, total);

  Program program;
  const auto add = [&](Op op, int k) {
    const int micro_batch = k / per_group * order.group + k % order.group;
    if (micro_batch >= shape.micro_batches) return;
    const int turn = k % per_group / order.group;
    const int chunk = op == Op::kForward ? turn : shape.virtual_stages - 1 - turn;
    program.push_back({.op = op, .stage = chunk * shape.ranks + rank, .micro_batch = micro_batch});
  };
  for (int k = 0; k < total + warm_up; ++k) {
    if (k < total) add(Op::kForward, k);
    if (order.backward && k >= warm_up) add(Op::kBackward, k - warm_up);
  }
  return program;
}

// Builds every rank's program with the order that `order_of` returns.
Schedule arrange(ScheduleKind kind, PipelineShape shape,
                 const std::function<Order(int)>& order_of) {
  check_shape(kind, shape);
  Schedule schedule;
  schedule.kind = kind;
  schedule.num_micro_batches = shape.micro_batches;
  for (int stage = 0; stage < shape.ranks * shape.virtual_stages; ++stage) {
    schedule.rank_of_stage.push_back(stage % shape.ranks);
  }
  for (int rank = 0; rank < shape.ranks; ++rank) {
    schedule.programs.push_back(lay_out(shape, rank, order_of(rank)));
  }
  return schedule;
}

// Forwards of a rank before its first backward in (interleaved) 1F1B: the fewest for which the
// first gradient arrives without a wait.
int warm_up_1f1b(PipelineShape shape, int rank) {
  const int later_ranks = shape.ranks - rank - 1;
  // With several stages per rank, backwards start at the rank's last stage, which is v-1 rounds of
  // p forwards later, and the forwards and backwards of a group both pass through the later ranks.
  if (shape.virtual_stages == 1) return later_ranks;
  return 2 * later_ranks + (shape.virtual_stages - 1) * shape.ranks;
}

}  // namespace

namespace {

Schedule all_forwards_first(ScheduleKind kind, PipelineShape shape) {
  return arrange(kind, shape, [&](int) {
    return Order{.group = shape.micro_batches,
                 .warm_up = shape.micro_batches * shape.virtual_stages};
  });
}

}  // namespace

Schedule gpipe(PipelineShape shape) { return all_forwards_first(ScheduleKind::kGpipe, shape); }

Schedule vertical(PipelineShape shape) {
  return all_forwards_first(ScheduleKind::kVertical, shape);
}

Schedule one_f_one_b(PipelineShape shape) {
  if (shape.virtual_stages > 1) {
    throw UserError({.operation = "schedule.build",
                     .where = "1f1b",
                     .what = "1f1b has one stage a rank",
                     .expected = "1 virtual stage",
                     .got = std::to_string(shape.virtual_stages),
                     .fix = "choose the schedule 'interleaved', or 1 virtual stage"});
  }
  return arrange(ScheduleKind::k1f1b, shape,
                 [&](int rank) { return Order{.group = 1, .warm_up = warm_up_1f1b(shape, rank)}; });
}

Schedule interleaved(PipelineShape shape) {
  return arrange(ScheduleKind::kInterleaved, shape, [&](int rank) {
    return Order{.group = shape.ranks, .warm_up = warm_up_1f1b(shape, rank)};
  });
}

Schedule forward_only(PipelineShape shape) {
  // Groups of p micro-batches keep all ranks busy and send each micro-batch on as early as
  // possible.
  return arrange(ScheduleKind::kForward, shape,
                 [&](int) { return Order{.group = shape.ranks, .backward = false}; });
}

namespace {

int every_activation(PipelineShape shape) { return shape.micro_batches * shape.virtual_stages; }

}  // namespace

Schedule build_schedule(ScheduleKind kind, PipelineShape shape) {
  switch (kind) {
    case ScheduleKind::kGpipe:
      return gpipe(shape);
    case ScheduleKind::kVertical:
      return vertical(shape);
    case ScheduleKind::k1f1b:
      return one_f_one_b(shape);
    case ScheduleKind::kInterleaved:
      return interleaved(shape);
    case ScheduleKind::kForward:
      break;
  }
  return forward_only(shape);
}

int in_flight_bound(ScheduleKind kind, PipelineShape shape, int rank) {
  if (kind == ScheduleKind::kForward) return 1;  // the micro-batch that is running
  if (kind == ScheduleKind::kGpipe || kind == ScheduleKind::kVertical)
    return every_activation(shape);
  return std::min(warm_up_1f1b(shape, rank) + 1, every_activation(shape));
}

}  // namespace strata
