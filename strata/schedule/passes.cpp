// Passes that every mesh needs. Passes for replicas are in replica_passes.cpp, passes for offloaded
// or sharded layers in tier_passes.cpp.
#include "strata/schedule/passes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "strata/base/errors.h"
#include "strata/layout/dataflow.h"

namespace strata {

Schedule with_joined_halves(Schedule schedule) {
  for (Program& program : schedule.programs) {
    Program joined;
    for (const Action& action : program) {
      const bool follows = action.op == Op::kBackwardWeight && action.stage == 0 &&
                           !joined.empty() && joined.back().op == Op::kBackwardInput &&
                           joined.back().stage == 0 &&
                           joined.back().micro_batch == action.micro_batch;
      if (follows) {
        joined.back().op = Op::kBackward;
      } else {
        joined.push_back(action);
      }
    }
    program = std::move(joined);
  }
  return schedule;
}

Schedule with_layers(Schedule schedule, const Partition& partition) {
  STRATA_CHECK_EQ(partition.num_stages(), schedule.num_stages(), "schedule.with_layers");
  for (Program& program : schedule.programs) {
    for (Action& action : program) {
      if (is_compute(action.op)) action.layers = partition.layers(action.stage);
    }
  }
  return schedule;
}

namespace {

// Adjacent layers that are all whole or all divided stay one action, in descending order.
void append_halves(Program& program, Action half, const LayerSet& whole) {
  const int first = half.layers.begin;
  const Op op = half.op;
  for (int end = half.layers.end; end > first;) {
    int begin = end - 1;
    const bool is_whole = whole.has(begin);
    while (begin > first && whole.has(begin - 1) == is_whole) --begin;
    half.layers = {begin, end};
    half.op = is_whole ? Op::kBackward : op;
    if (!is_whole || op == Op::kBackwardInput) program.push_back(half);
    end = begin;
  }
}

}  // namespace

Schedule with_whole_backwards(Schedule schedule, const LayerSet& layers) {
  if (layers.empty()) return schedule;
  for (Program& program : schedule.programs) {
    Program split;
    for (const Action& action : program) {
      if (action.op == Op::kBackwardInput || action.op == Op::kBackwardWeight) {
        append_halves(split, action, layers);
      } else {
        split.push_back(action);
      }
    }
    program = std::move(split);
  }
  return schedule;
}

LayerSet undivided_layers(const Dataflow& dataflow, const ShardLayout& shards,
                          const TierLayout& tiers) {
  LayerSet layers;
  for (int layer = 0; layer < dataflow.num_layers; ++layer)
    if (shards[layer].weights || shards[layer].reduced_each || tiers[layer].fetches_weights())
      layers.add(layer);
  return layers;
}

namespace {

void append_segments(Program& program, Action backward, const LayerSet& recompute) {
  const int first = backward.layers.begin;
  for (int end = backward.layers.end; end > first;) {
    int begin = end - 1;
    const bool recomputed = recompute.has(begin);
    while (!recomputed && begin > first && !recompute.has(begin - 1)) --begin;
    backward.layers = {begin, end};
    if (recomputed) {
      Action forward = backward;
      forward.op = Op::kRecompute;
      program.push_back(forward);
    }
    program.push_back(backward);
    end = begin;
  }
}

}  // namespace

Schedule with_recompute(Schedule schedule, const LayerSet& recompute) {
  for (Program& program : schedule.programs) {
    Program split;
    for (const Action& action : program) {
      if (makes_input_gradients(action.op)) {
        append_segments(split, action, recompute);
      } else {
        split.push_back(action);
      }
    }
    program = std::move(split);
  }
  return schedule;
}

namespace {

// Per layer: the messages that precede and follow its forward and its backward.
struct Transfers {
  explicit Transfers(int num_layers)
      : before_forward(num_layers),
        after_forward(num_layers),
        before_backward(num_layers),
        after_backward(num_layers) {}
  std::vector<Program> before_forward, after_forward, before_backward, after_backward;
};

void add_activations(Transfers& transfers, const Value& value, int index,
                     const LayerPlacement& placement) {
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
                   const LayerPlacement& placement) {
  const int source = placement.rank[value.producer];
  // Descending, the order in which the producer sums the gradients.
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
  } else if (makes_input_gradients(action.op)) {
    for (int l = end; l-- > begin;) append(program, action, transfers.before_backward[l]);
    program.push_back(action);
    for (int l = end; l-- > begin;) append(program, action, transfers.after_backward[l]);
  } else {
    program.push_back(action);
  }
}

}  // namespace

Schedule with_transfers(Schedule schedule, const Dataflow& dataflow, const Partition& partition) {
  const LayerPlacement placement(dataflow, partition, schedule.rank_of_stage);
  Transfers transfers(dataflow.num_layers);
  for (std::size_t v = 0; v < dataflow.values.size(); ++v) {
    const Value& value = dataflow.values[v];
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

namespace {

enum class Way { kToOwner, kToUser };

void append_ties(std::vector<Program>& programs, const Dataflow& dataflow,
                 const LayerPlacement& placement, Way way) {
  const Op send = way == Way::kToOwner ? Op::kSendTiedGradient : Op::kSendTiedWeight;
  for (std::size_t t = 0; t < dataflow.ties.size(); ++t) {
    const int owner = placement.rank[dataflow.ties[t].owner];
    for (const int layer : dataflow.ties[t].users) {
      const int user = placement.rank[layer];
      if (user == owner) continue;
      const int from = way == Way::kToOwner ? user : owner;
      const int to = way == Way::kToOwner ? owner : user;
      Action action{.op = send, .value = static_cast<int>(t), .consumer = layer, .peer = to};
      programs[from].push_back(action);
      action.op = receive_of(send);
      action.peer = from;
      programs[to].push_back(action);
    }
  }
}

void append_tie_sums(std::vector<Program>& programs, const Dataflow& dataflow,
                     const LayerPlacement& placement) {
  for (std::size_t t = 0; t < dataflow.ties.size(); ++t) {
    programs[placement.rank[dataflow.ties[t].owner]].push_back(
        {.op = Op::kAddTiedGradients, .value = static_cast<int>(t)});
  }
}

// Starts the reductions that had to wait for a tie, and awaits those that were started once per
// step.
void append_reductions(Program& program, int rank, const Dataflow& dataflow,
                       const LayerPlacement& placement, const ShardLayout& shards) {
  std::set<int> owners;  // a layer may own several ties
  for (const Tie& tie : dataflow.ties) {
    if (placement.rank[tie.owner] != rank || !shards[tie.owner].reduced) continue;
    if (!owners.insert(tie.owner).second) continue;
    program.push_back({.op = Op::kReduceGradients, .layers = {tie.owner, tie.owner + 1}});
  }
  Program awaits;
  for (Action action : program) {
    if (action.op != Op::kReduceGradients || action.micro_batch >= 0) continue;
    action.op = Op::kAwaitGradients;
    awaits.push_back(action);
  }
  program.insert(program.end(), awaits.begin(), awaits.end());
}

// The layers that a program names in actions of this kind.
LayerSet layers_with(const std::vector<Program>& programs, Op op) {
  LayerSet layers;
  for (const Program& program : programs)
    for (const Action& action : program)
      if (action.op == op) layers.add(action.layers.begin);
  return layers;
}

// Offloads gradients that become complete only here: those of tied layers, and those that stay on
// the device but that the host needs a copy of. This precedes the norm, which reads the gradients
// that the update will read.
void append_offloads(std::vector<Program>& programs, const LayerPlacement& placement,
                     const ShardLayout& shards, const TierLayout& tiers) {
  const LayerSet offloaded = layers_with(programs, Op::kOffloadGradients);
  for (int layer = 0; layer < static_cast<int>(placement.rank.size()); ++layer) {
    Program& program = programs[placement.rank[layer]];
    if (!tiers[layer].updates_on_host() || shards[layer].reduced) continue;
    if (!offloaded.has(layer))
      program.push_back({.op = Op::kOffloadGradients, .layers = {layer, layer + 1}});
  }
}

// One update per layer, so that the transfers of one layer overlap with the update of another.
void append_updates(std::vector<Program>& programs, const LayerPlacement& placement,
                    const ShardLayout& shards, const TierLayout& tiers) {
  const int layers = static_cast<int>(placement.rank.size());
  const LayerSet updated = layers_with(programs, Op::kUpdate);
  for (int layer = 0; layer < layers; ++layer) {
    Program& program = programs[placement.rank[layer]];
    const LayerRange range{layer, layer + 1};
    const LayerTiers place = tiers[layer];
    if (!updated.has(layer)) program.push_back({.op = Op::kUpdate, .layers = range});
    if (place.updates_on_host() && !place.fetches_weights() && !shards[layer].states)
      program.push_back({.op = Op::kPrefetchWeights, .layers = range});
  }
  for (int layer = 0; layer < layers; ++layer) {
    if (!shards[layer].gathers_weights()) continue;
    programs[placement.rank[layer]].push_back(
        {.op = Op::kGatherWeights, .layers = {layer, layer + 1}});
  }
}

}  // namespace

Schedule with_update(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
                     const ShardLayout& shards, const TierLayout& tiers) {
  const LayerPlacement placement(dataflow, partition, schedule.rank_of_stage);
  append_ties(schedule.programs, dataflow, placement, Way::kToOwner);
  append_tie_sums(schedule.programs, dataflow, placement);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank)
    append_reductions(schedule.programs[rank], rank, dataflow, placement, shards);
  append_offloads(schedule.programs, placement, shards, tiers);
  for (Program& program : schedule.programs) program.push_back({.op = Op::kReduceNormAndLoss});
  append_updates(schedule.programs, placement, shards, tiers);
  append_ties(schedule.programs, dataflow, placement, Way::kToUser);
  return schedule;
}

Schedule with_rows(Schedule schedule, const Dataflow& dataflow) {
  const LayerRange layers{dataflow.rows_layer, dataflow.rows_layer + 1};
  const auto reads = [&](const Action& action, Op op) {
    return action.op == op && action.layers.begin <= layers.begin &&
           action.layers.end >= layers.end;
  };
  for (Program& program : schedule.programs) {
    const auto forward = [&](const Action& action) { return reads(action, Op::kForward); };
    if (std::ranges::none_of(program, forward)) continue;
    Program full;
    const auto backward = std::find_if(program.rbegin(), program.rend(), [&](const Action& action) {
      return makes_input_gradients(action.op) && reads(action, action.op);
    });
    const bool trains = backward != program.rend();
    if (trains) full.push_back({.op = Op::kPrefetchRows, .layers = layers});
    full.push_back({.op = Op::kFetchRows, .layers = layers});
    const auto rest = trains ? backward.base() : program.end();
    full.insert(full.end(), program.begin(), rest);
    if (trains) full.push_back({.op = Op::kSendRowGradients, .layers = layers});
    full.insert(full.end(), rest, program.end());
    program = std::move(full);
  }
  return schedule;
}

Schedule lower(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
               const LowerOptions& options) {
  schedule = with_layers(with_joined_halves(std::move(schedule)), partition);
  schedule = with_whole_backwards(std::move(schedule),
                                  undivided_layers(dataflow, options.shards, options.tiers));
  if (!options.recompute.empty()) schedule = with_recompute(std::move(schedule), options.recompute);
  schedule =
      with_prefetches(std::move(schedule), dataflow, partition, options.shards, options.tiers);
  schedule = with_activation_offloads(std::move(schedule), options.tiers);
  if (options.update) {
    schedule = with_reductions(std::move(schedule), dataflow, options.shards);
    schedule = with_offloads(std::move(schedule), dataflow, options.shards, options.tiers);
  }
  schedule = with_transfers(std::move(schedule), dataflow, partition);
  if (dataflow.rows_layer >= 0) schedule = with_rows(std::move(schedule), dataflow);
  if (options.update)
    schedule = with_update(std::move(schedule), dataflow, partition, options.shards, options.tiers);
  return schedule;
}

}  // namespace strata
