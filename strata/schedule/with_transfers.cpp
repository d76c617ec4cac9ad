#include <algorithm>
#include <utility>

#include "strata/schedule/passes.h"
#include "strata/schedule/placement.h"

namespace strata::schedule {
namespace {

// Per layer: what has to arrive before, and to leave after, its forward and its backward.
struct Transfers {
  explicit Transfers(int num_layers)
      : before_forward(num_layers),
        after_forward(num_layers),
        before_backward(num_layers),
        after_backward(num_layers) {}
  std::vector<Program> before_forward, after_forward, before_backward, after_backward;
};

void add_activations(Transfers& transfers, const Value& value, int index,
                     const Placement& placement) {
  const int source = placement.rank[value.producer];
  std::vector<int> served{source};
  for (const int consumer : value.consumers) {
    const int target = placement.rank[consumer];
    if (std::find(served.begin(), served.end(), target) != served.end()) continue;
    served.push_back(target);
    transfers.after_forward[value.producer].push_back(
        {.op = Op::kSendActivation, .value = index, .peer = target});
    transfers.before_forward[consumer].push_back(
        {.op = Op::kReceiveActivation, .value = index, .peer = source});
  }
}

void add_gradients(Transfers& transfers, const Value& value, int index,
                   const Placement& placement) {
  const int source = placement.rank[value.producer];
  // Descending, as the producer sums them.
  for (auto consumer = value.consumers.rbegin(); consumer != value.consumers.rend(); ++consumer) {
    const int user = placement.rank[*consumer];
    if (user == source) continue;
    transfers.after_backward[*consumer].push_back(
        {.op = Op::kSendGradient, .value = index, .consumer = *consumer, .peer = source});
    transfers.before_backward[value.producer].push_back(
        {.op = Op::kReceiveGradient, .value = index, .consumer = *consumer, .peer = user});
  }
}

void append(Program& program, const Action& compute, const Program& transfers) {
  for (Action transfer : transfers) {
    transfer.stage = compute.stage;
    transfer.micro_batch = compute.micro_batch;
    program.push_back(transfer);
  }
}

void append_with_transfers(Program& program, const Action& action, const Transfers& transfers) {
  const auto [begin, end] = action.layers;
  if (action.op == Op::kForward) {
    for (int l = begin; l < end; ++l) append(program, action, transfers.before_forward[l]);
    program.push_back(action);
    for (int l = begin; l < end; ++l) append(program, action, transfers.after_forward[l]);
  } else if (action.op == Op::kBackward) {
    for (int l = end; l-- > begin;) append(program, action, transfers.before_backward[l]);
    program.push_back(action);
    for (int l = end; l-- > begin;) append(program, action, transfers.after_backward[l]);
  } else {
    program.push_back(action);
  }
}

}  // namespace

Schedule with_transfers(Schedule schedule, const Wiring& wiring, const Partition& partition) {
  const Placement placement(wiring, partition, schedule.rank_of_stage);
  Transfers transfers(wiring.num_layers);
  for (std::size_t v = 0; v < wiring.values.size(); ++v) {
    const Value& value = wiring.values[v];
    add_activations(transfers, value, static_cast<int>(v), placement);
    if (value.differentiable) add_gradients(transfers, value, static_cast<int>(v), placement);
  }
  for (Program& program : schedule.programs) {
    Program full;
    for (const Action& action : program) append_with_transfers(full, action, transfers);
    program = std::move(full);
  }
  return schedule;
}

}  // namespace strata::schedule
