#include "strata/schedule/order.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"

namespace strata::schedule {
namespace {

void check_shape(const std::string& name, Shape shape) {
  for (const auto& [what, count] :
       {std::pair{"ranks", shape.ranks}, std::pair{"micro-batches", shape.micro_batches},
        std::pair{"virtual stages", shape.virtual_stages}}) {
    if (count >= 1) continue;
    throw UserError({.operation = "schedule.build",
                     .where = name,
                     .what = std::string("the number of ") + what + " is too small",
                     .expected = "1 or more",
                     .got = std::to_string(count),
                     .fix = std::string("set the number of ") + what + " to 1 or more"});
  }
}

Program lay_out(Shape shape, int rank, const Order& order) {
  // A last group that is not full is laid out as if it were, and its surplus left out: what remains
  // of a legal order after a whole micro-batch is struck from all ranks is legal.
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

}  // namespace

Schedule arrange(const std::string& name, Shape shape, const std::function<Order(int)>& order_of) {
  check_shape(name, shape);
  Schedule schedule;
  schedule.name = name;
  schedule.num_micro_batches = shape.micro_batches;
  for (int stage = 0; stage < shape.ranks * shape.virtual_stages; ++stage) {
    schedule.rank_of_stage.push_back(stage % shape.ranks);
  }
  for (int rank = 0; rank < shape.ranks; ++rank) {
    schedule.programs.push_back(lay_out(shape, rank, order_of(rank)));
  }
  return schedule;
}

int warm_up_1f1b(Shape shape, int rank) {
  const int behind = shape.ranks - rank - 1;
  // With several stages a rank, backwards start at the rank's last stage, v-1 rounds of p forwards
  // later, and a group's forwards and backwards pass the ranks behind in both directions.
  if (shape.virtual_stages == 1) return behind;
  return 2 * behind + (shape.virtual_stages - 1) * shape.ranks;
}

}  // namespace strata::schedule
