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
#include "strata/schedule/empty_schedule.h"

namespace strata {
namespace {

struct Order {
  // micro-batches that run through one stage before the rank starts its next stage
  int group = 1;
  // forwards before the first backward; a larger number than there are forwards means all
  int warm_up = 0;
  bool backward = true;  // false: forwards only
};

void check_shape(ScheduleKind kind, const PipelineShape& shape) {
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
  const int stages = traits_of(kind).stages_per_rank;
  if (stages == 0 || shape.virtual_stages == stages) return;
  throw UserError({.operation = "schedule.build",
                   .where = name_of(kind),
                   .what = "the schedule has " + std::to_string(stages) +
                           (stages == 1 ? " stage a rank" : " stages a rank"),
                   .expected = "mesh.virtual_stages " + std::to_string(stages),
                   .got = std::to_string(shape.virtual_stages),
                   .fix = "set mesh.virtual_stages=" + std::to_string(stages) +
                          (stages == 1 ? ", or choose the schedule 'interleaved'" : "")});
}

Program lay_out(const PipelineShape& shape, int rank, const Order& order) {
  // An incomplete last group is laid out as a full one and the surplus micro-batches are dropped.
  // Dropping a whole micro-batch from all ranks keeps a legal order legal.
  const int groups = (shape.micro_batches + order.group - 1) / order.group;
  std::vector<int> stages;
  for (int stage = 0; stage < static_cast<int>(shape.rank_of_stage.size()); ++stage)
    if (shape.rank_of_stage[stage] == rank) stages.push_back(stage);
  const int per_group = order.group * static_cast<int>(stages.size());
  const int total = groups * per_group;
  const int warm_up = std::min(order.warm_up, total);

  Program program;
  const auto add = [&](Op op, int k) {
    const int micro_batch = k / per_group * order.group + k % order.group;
    if (micro_batch >= shape.micro_batches) return;
    const std::size_t turn = k % per_group / order.group;
    const int stage = stages[op == Op::kForward ? turn : stages.size() - 1 - turn];
    program.push_back({.op = op, .stage = stage, .micro_batch = micro_batch});
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
  Schedule schedule = empty_schedule(kind, shape);
  shape.rank_of_stage = schedule.rank_of_stage;
  for (int rank = 0; rank < shape.ranks; ++rank)
    schedule.programs[rank] = lay_out(shape, rank, order_of(rank));
  return schedule;
}

// Forwards of a rank before its first backward in (interleaved) 1F1B: the fewest for which the
// first gradient arrives without a wait.
int warm_up_1f1b(const PipelineShape& shape, int rank) {
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

const ScheduleTraits& traits_of(ScheduleKind kind) {
  static constexpr ScheduleTraits kAny, kOne{.stages_per_rank = 1},
      kHalves{.stages_per_rank = 1, .halves = true},
      kV{.stages_per_rank = 2, .v_shaped = true, .halves = true},
      kSearched{.stages_per_rank = 1, .halves = true, .has_builder = false},
      kRead{.halves = true, .has_builder = false};
  switch (kind) {
    case ScheduleKind::k1f1b:
      return kOne;
    case ScheduleKind::kZbH1:
    case ScheduleKind::kZbH2:
      return kHalves;
    case ScheduleKind::kZbv:
    case ScheduleKind::kVHalf:
    case ScheduleKind::kVMin:
    case ScheduleKind::kDualPipeV:
      return kV;
    case ScheduleKind::kZb:
      return kSearched;
    case ScheduleKind::kFile:
      return kRead;
    case ScheduleKind::kGpipe:
    case ScheduleKind::kVertical:
    case ScheduleKind::kInterleaved:
    case ScheduleKind::kForward:
      break;
  }
  return kAny;
}

std::vector<int> ranks_of_stages(ScheduleKind kind, int ranks, int stages) {
  std::vector<int> places;
  for (int stage = 0; stage < stages; ++stage)
    places.push_back(traits_of(kind).v_shaped && stage >= ranks ? stages - 1 - stage
                                                                : stage % ranks);
  return places;
}

Schedule empty_schedule(ScheduleKind kind, const PipelineShape& shape) {
  check_shape(kind, shape);
  Schedule schedule{.kind = kind, .num_micro_batches = shape.micro_batches};
  schedule.rank_of_stage = shape.rank_of_stage;
  if (schedule.rank_of_stage.empty())
    schedule.rank_of_stage = ranks_of_stages(kind, shape.ranks, shape.ranks * shape.virtual_stages);
  schedule.programs.resize(shape.ranks);
  return schedule;
}

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
    case ScheduleKind::kZbH1:
      return zb_h1(shape);
    case ScheduleKind::kZbH2:
      return zb_h2(shape);
    case ScheduleKind::kZbv:
      return zbv(shape);
    case ScheduleKind::kVHalf:
      return v_half(shape);
    case ScheduleKind::kVMin:
      return v_min(shape);
    case ScheduleKind::kDualPipeV:
      return dualpipev(shape);
    case ScheduleKind::kForward:
      return forward_only(shape);
    case ScheduleKind::kZb:
    case ScheduleKind::kFile:
      break;
  }
  STRATA_CHECK(false, "schedule.build");  // StepDecisions::order has them
}

int peak_in_flight(const Program& program) {
  int now = 0, peak = 0;
  for (const Action& action : program) {
    if (action.op == Op::kForward) peak = std::max(peak, ++now);
    if (makes_input_gradients(action.op)) --now;
  }
  return peak;
}

int in_flight_bound(ScheduleKind kind, PipelineShape shape, int rank) {
  const int all = shape.micro_batches * shape.virtual_stages;
  switch (kind) {
    case ScheduleKind::kForward:
      return 1;  // the micro-batch that is running
    case ScheduleKind::kGpipe:
    case ScheduleKind::kVertical:
      return all;
    case ScheduleKind::k1f1b:
    case ScheduleKind::kInterleaved:
      return std::min(warm_up_1f1b(shape, rank) + 1, all);
    default:
      return peak_in_flight(build_schedule(kind, shape).programs[rank]);
  }
}

Schedule first_micro_batches(const Schedule& schedule, int micro_batches) {
  Schedule shorter = schedule;
  shorter.num_micro_batches = std::min(micro_batches, schedule.num_micro_batches);
  for (Program& program : shorter.programs)
    std::erase_if(program,
                  [&](const Action& action) { return action.micro_batch >= micro_batches; });
  return shorter;
}

}  // namespace strata
