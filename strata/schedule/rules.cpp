// All ranks are checked against one common state, as if the step ran on one clock: an action may
// use only what an earlier action of any rank has produced and, across ranks, sent and received.
#include "strata/schedule/rules.h"

#include <algorithm>
#include <span>

#include "strata/base/errors.h"

namespace strata {

std::string layer_name(int layer) { return "layer " + std::to_string(layer); }

namespace {

std::string run_name(int layer, int micro_batch) {
  return layer_name(layer) + ", micro-batch " + std::to_string(micro_batch);
}

}  // namespace

Rules::Rules(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
             const ValidateOptions& options)
    : schedule_(&schedule),
      dataflow_(&dataflow),
      partition_(&partition),
      options_(&options),
      placement_(dataflow, partition, schedule.rank_of_stage),
      messages_(schedule, dataflow),
      states_(static_cast<std::size_t>(dataflow.num_layers) * schedule.num_micro_batches),
      held_(dataflow.num_layers),
      under_way_(dataflow.num_layers),
      reduced_(dataflow.num_layers),
      offloaded_(dataflow.num_layers),
      owned_ties_(dataflow.num_layers),
      added_(dataflow.ties.size()),
      next_input_(dataflow.num_layers),
      next_backward_(dataflow.num_layers),
      layers_done_(static_cast<std::size_t>(schedule.num_stages()) * schedule.num_micro_batches),
      in_flight_(schedule.num_ranks()),
      peak_in_flight_(schedule.num_ranks()),
      at_norm_(schedule.num_ranks()),
      normed_(schedule.num_ranks()),
      updated_(dataflow.num_layers) {
  for (const int rank : schedule.rank_of_stage) {
    STRATA_CHECK(rank >= 0 && rank < schedule.num_ranks(), "schedule.validate");
  }
  for (std::size_t t = 0; t < dataflow.ties.size(); ++t) {
    owned_ties_[dataflow.ties[t].owner].push_back(static_cast<int>(t));
  }
  STRATA_CHECK(
      options.in_flight_bound.empty() || options.in_flight_bound.size() == schedule.programs.size(),
      "schedule.validate");
}

bool Rules::ready(const Action& action, int rank) {
  if (is_receive(action.op)) return messages_.arrived(action, rank);
  if (action.op != Op::kReduceNormAndLoss) return true;
  if (!at_norm_[rank]) {
    at_norm_[rank] = true;
    ++ranks_at_norm_;
  }
  return ranks_at_norm_ == schedule_->num_ranks();
}

int Rules::awaited_rank(const Action& action) const {
  if (is_receive(action.op)) return action.peer;
  return static_cast<int>(std::find(at_norm_.begin(), at_norm_.end(), false) - at_norm_.begin());
}

void Rules::perform(const Action& action, int rank) {
  switch (action.op) {
    case Op::kForward:
      return forward(action, rank);
    case Op::kRecompute:
      check_compute(action, rank);
      return recompute(action);
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return backward(action, rank);
    case Op::kOffloadActivations:
    case Op::kFetchActivations:
      return move_activations(action, rank);
    case Op::kAddTiedGradients:
      return add_ties(action, rank);
    case Op::kPrefetchWeights:
      return fetch(action, rank);
    case Op::kReleaseWeights:
      return release(action);
    case Op::kOffloadGradients:
      return offload(action, rank);
    case Op::kReduceGradients:
      return reduce(action, rank);
    case Op::kAwaitGradients:
      return await(action);
    case Op::kGatherWeights:
      return gather(action);
    case Op::kPrefetchRows:
    case Op::kFetchRows:
    case Op::kSendRowGradients:
      return move_rows(action, rank);
    case Op::kReduceNormAndLoss:
      return reduce_norm(action, rank);
    case Op::kUpdate:
      return update(action, rank);
    case Op::kSendActivation:
    case Op::kSendGradient:
      messages_.send(action, rank);
      return check_send(action, rank);
    case Op::kSendTiedGradient:
    case Op::kSendTiedWeight:
      messages_.send(action, rank);
      return check_send_of_tie(action, rank);
    case Op::kReceiveActivation:
    case Op::kReceiveGradient:
    case Op::kReceiveTiedGradient:
    case Op::kReceiveTiedWeight:
      return messages_.receive(action, rank);
  }
}

void Rules::check_compute(const Action& action, int rank) const {
  const bool known = action.stage >= 0 && action.stage < schedule_->num_stages();
  if (!known || schedule_->rank_of_stage[action.stage] != rank) {
    throw BrokenRule("a rank computes a stage that is not its own", "a stage of this rank",
                     to_string(action));
  }
  const LayerRange stage = partition_->layers(action.stage);
  if (action.layers.size() <= 0 || action.layers.begin < stage.begin ||
      action.layers.end > stage.end) {
    throw BrokenRule(
        "the layers are not those of the stage",
        "layers within [" + std::to_string(stage.begin) + "," + std::to_string(stage.end) + ")",
        to_string(action));
  }
  if (action.micro_batch < 0 || action.micro_batch >= schedule_->num_micro_batches) {
    throw BrokenRule("there is no such micro-batch",
                     "0 to " + std::to_string(schedule_->num_micro_batches - 1), to_string(action));
  }
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (!is_away(layer) || held_[layer]) continue;
    throw BrokenRule("a layer runs without its weights",
                     "a fetch of " + layer_name(layer) + " before", to_string(action));
  }
}

bool Rules::has_value(int value, int micro_batch, int rank) const {
  const int producer = dataflow_->values[value].producer;
  if (placement_.rank[producer] == rank) return state(producer, micro_batch) != State::kNothing;
  return messages_.was_received({.op = Op::kReceiveActivation,
                                 .micro_batch = micro_batch,
                                 .value = value,
                                 .peer = placement_.rank[producer]},
                                rank);
}

bool Rules::has_gradient(int value, int consumer, int micro_batch, int rank) const {
  if (placement_.rank[consumer] == rank) return has_input_gradients(state(consumer, micro_batch));
  return messages_.was_received({.op = Op::kReceiveGradient,
                                 .micro_batch = micro_batch,
                                 .value = value,
                                 .consumer = consumer,
                                 .peer = placement_.rank[consumer]},
                                rank);
}

void Rules::enter_flight(const Action& action, int rank) {
  int& done = layers_done(action);
  if (done == 0) ++in_flight_[rank];
  done += action.layers.size();
  peak_in_flight_[rank] = std::max(peak_in_flight_[rank], in_flight_[rank]);
  if (!options_->in_flight_bound.empty() && in_flight_[rank] > options_->in_flight_bound[rank]) {
    throw BrokenRule("too many activations are in flight",
                     "at most " + std::to_string(options_->in_flight_bound[rank]) +
                         " forwards that await their backward",
                     std::to_string(in_flight_[rank]));
  }
  // Without backwards, a stage passes its value on at once.
  if (!options_->backward && done == partition_->layers(action.stage).size()) --in_flight_[rank];
}

void Rules::leave_flight(const Action& action, int rank) {
  int& done = layers_done(action);
  done -= action.layers.size();
  if (done == 0) --in_flight_[rank];
}

void Rules::forward(const Action& action, int rank) {
  check_compute(action, rank);
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (state(layer, action.micro_batch) != State::kNothing) {
      throw BrokenRule("a forward runs twice", "one forward a layer and micro-batch",
                       run_name(layer, action.micro_batch) + " again");
    }
    for (const int value : placement_.inputs[layer]) {
      if (has_value(value, action.micro_batch, rank)) continue;
      throw BrokenRule("a forward runs before its input is there",
                       "value v" + std::to_string(value) + " made here or received before",
                       run_name(layer, action.micro_batch) + " without it");
    }
    if (layer == dataflow_->rows_layer && std::ranges::find(rows_, Op::kFetchRows) == rows_.end()) {
      throw BrokenRule("a forward runs without its rows", "a fetch of the rows before",
                       run_name(layer, action.micro_batch));
    }
    state(layer, action.micro_batch) = State::kForward;
  }
  enter_flight(action, rank);
}

void Rules::recompute(const Action& action) {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (state(layer, action.micro_batch) != State::kForward) {
      throw BrokenRule("a recompute is out of place", "once, between a forward and its backward",
                       run_name(layer, action.micro_batch));
    }
    state(layer, action.micro_batch) = State::kRecompute;
  }
}

void Rules::backward(const Action& action, int rank) {
  check_compute(action, rank);
  if (!options_->backward) {
    throw BrokenRule("a forward-only schedule has a backward", "forwards only", to_string(action));
  }
  for (int layer = action.layers.end; layer-- > action.layers.begin;) {
    if (under_way_[layer]) {
      throw BrokenRule("a backward runs while the layer's gradients are being reduced",
                       "the reduction awaited before", run_name(layer, action.micro_batch));
    }
    if (offloaded_[layer]) {
      throw BrokenRule("a backward runs after the layer's gradients have left",
                       "the offload after the last backward", run_name(layer, action.micro_batch));
    }
    if (makes_input_gradients(action.op)) make_input_gradients(action, layer, rank);
    if (ends_weight_gradients(action.op)) end_weight_gradients(action, layer);
  }
  if (makes_input_gradients(action.op)) leave_flight(action, rank);
}

void Rules::make_input_gradients(const Action& action, int layer, int rank) {
  State& state_here = state(layer, action.micro_batch);
  if (state_here == State::kAway) {
    throw BrokenRule("a backward runs while its inputs are on the host", "their fetch before",
                     run_name(layer, action.micro_batch));
  }
  if (state_here == State::kNothing || has_input_gradients(state_here)) {
    throw BrokenRule("a backward has no forward", "one forward before each backward",
                     run_name(layer, action.micro_batch));
  }
  // The first half adds some weight gradients, too.
  if (next_input_[layer] != action.micro_batch) {
    throw BrokenRule("weight gradients accumulate out of ascending micro-batch order",
                     "backward of " + run_name(layer, next_input_[layer]) + " next",
                     "micro-batch " + std::to_string(action.micro_batch));
  }
  for (const int value : placement_.outputs[layer]) {
    if (!dataflow_->values[value].differentiable) continue;
    for (const int consumer : dataflow_->values[value].consumers) {
      if (has_gradient(value, consumer, action.micro_batch, rank)) continue;
      throw BrokenRule("a backward runs before its gradient is there",
                       "gradient of value v" + std::to_string(value) + " from " +
                           layer_name(consumer) + " made here or received before",
                       run_name(layer, action.micro_batch) + " without it");
    }
  }
  state_here = State::kInputs;
  ++next_input_[layer];
}

void Rules::end_weight_gradients(const Action& action, int layer) {
  State& state_here = state(layer, action.micro_batch);
  if (state_here != State::kInputs) {
    throw BrokenRule("the second half of a backward is out of place",
                     "once, after the first half of " + run_name(layer, action.micro_batch),
                     to_string(action));
  }
  if (next_backward_[layer] != action.micro_batch) {
    throw BrokenRule("weight gradients accumulate out of ascending micro-batch order",
                     "second half of " + run_name(layer, next_backward_[layer]) + " next",
                     "micro-batch " + std::to_string(action.micro_batch));
  }
  state_here = State::kBackward;
  ++next_backward_[layer];
}

void Rules::check_send(const Action& action, int rank) const {
  const Value& value = dataflow_->values[action.value];
  const bool activation = action.op == Op::kSendActivation;
  const int maker = activation ? value.producer : action.consumer;
  const bool made = activation ? state(maker, action.micro_batch) != State::kNothing
                               : has_input_gradients(state(maker, action.micro_batch));
  if (placement_.rank[maker] != rank || !made) {
    throw BrokenRule("a message is sent before it is made",
                     std::string(activation ? "forward" : "backward") + " of " +
                         run_name(maker, action.micro_batch) + " on this rank before",
                     to_string(action));
  }
  if (!activation && (!value.differentiable || placement_.rank[value.producer] != action.peer)) {
    throw BrokenRule("a gradient goes where none is wanted",
                     value.differentiable
                         ? "to rank " + std::to_string(placement_.rank[value.producer])
                         : "none: the value is not differentiable",
                     to_string(action));
  }
}

void Rules::check_backwards_done(const Action& action, int layer) const {
  if (!options_->backward || next_backward_[layer] == schedule_->num_micro_batches) return;
  throw BrokenRule("a gradient is used before it is complete",
                   "all " + std::to_string(schedule_->num_micro_batches) + " backwards of " +
                       layer_name(layer) + " before",
                   to_string(action) + " after " + std::to_string(next_backward_[layer]));
}

void Rules::check_send_of_tie(const Action& action, int rank) const {
  const Tie& tie = dataflow_->ties[action.value];
  const bool gradient = action.op == Op::kSendTiedGradient;
  const int source = gradient ? action.consumer : tie.owner;
  const int target = gradient ? tie.owner : action.consumer;
  if (placement_.rank[source] != rank || placement_.rank[target] != action.peer) {
    throw BrokenRule("a tied weight's message takes a wrong way",
                     "from rank " + std::to_string(placement_.rank[source]) + " to rank " +
                         std::to_string(placement_.rank[target]),
                     to_string(action));
  }
  if (gradient) return check_backwards_done(action, source);
  if (!updated_[tie.owner]) {
    throw BrokenRule("a tied weight leaves before its update", "the owner's update before",
                     to_string(action));
  }
}

template <typename F>
void Rules::for_each_layer(int rank, F f) const {
  for (int stage = 0; stage < schedule_->num_stages(); ++stage) {
    if (schedule_->rank_of_stage[stage] != rank) continue;
    const auto [begin, end] = partition_->layers(stage);
    for (int layer = begin; layer < end; ++layer) f(layer);
  }
}

// Training needs a prefetch, a fetch and, after the backwards, a send of gradients; a forward-only
// program needs a fetch only.
void Rules::move_rows(const Action& action, int rank) {
  const int layer = dataflow_->rows_layer;
  static constexpr Op kTraining[] = {Op::kPrefetchRows, Op::kFetchRows, Op::kSendRowGradients};
  const std::span<const Op> order =
      options_->backward ? std::span(kTraining) : std::span(kTraining).subspan(1, 1);
  const std::size_t done = rows_.size();
  if (layer < 0 || placement_.rank[layer] != rank || done >= order.size() ||
      action.op != order[done]) {
    throw BrokenRule("rows are moved out of place",
                     layer < 0 || placement_.rank[layer] != rank || done >= order.size()
                         ? "nothing more of them on this rank"
                         : kind_of(order[done]) + std::string(" next"),
                     to_string(action));
  }
  if (action.op == Op::kSendRowGradients) check_backwards_done(action, layer);
  rows_.push_back(action.op);
}

void Rules::check_rows_sent(const Action& action, int rank) const {
  const int layer = dataflow_->rows_layer;
  if (layer < 0 || placement_.rank[layer] != rank) return;
  if (!rows_.empty() && rows_.back() == Op::kSendRowGradients) return;
  throw BrokenRule("the step ends with rows that are not updated", "their gradients sent before",
                   to_string(action));
}

void Rules::reduce_norm(const Action& action, int rank) {
  check_rows_sent(action, rank);
  for_each_layer(rank, [&](int layer) { check_backwards_done(action, layer); });
  for (std::size_t t = 0; t < dataflow_->ties.size(); ++t) {
    if (placement_.rank[dataflow_->ties[t].owner] != rank || added_[t]) continue;
    throw BrokenRule("the norm is computed before tied gradients are added",
                     "the sum of tie t" + std::to_string(t) + " before", to_string(action));
  }
  for_each_layer(rank, [&](int layer) {
    check_reduced(action, layer);
    if (options_->tiers[layer].updates_on_host()) check_offloaded(action, layer);
  });
  if (normed_[rank])
    throw BrokenRule("the norm is computed twice", "once a step", to_string(action));
  normed_[rank] = true;
}

void Rules::update(const Action& action, int rank) {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    const bool in_time = normed_[rank] || options_->tiers.updates_at_once;
    if (in_time && placement_.rank[layer] == rank && !updated_[layer]) {
      if (options_->tiers[layer].updates_on_host()) check_offloaded(action, layer);
      updated_[layer] = any_updated_ = true;
      continue;
    }
    throw BrokenRule("an update is out of place",
                     "one a step and layer of the rank, after the norm", to_string(action));
  }
}

void Rules::gather(const Action& action) const {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (updated_[layer]) continue;
    throw BrokenRule("weights are exchanged before they are updated", "the update before",
                     to_string(action));
  }
}

void Rules::check_end(int rank) const {
  const State last = options_->backward ? State::kBackward : State::kForward;
  for_each_layer(rank, [&](int layer) {
    for (int m = 0; m < schedule_->num_micro_batches; ++m) {
      if (state(layer, m) == last) continue;
      throw BrokenRule(
          "the step ends unfinished",
          std::string(options_->backward ? "backward" : "forward") + " of " + run_name(layer, m),
          "the end of the program");
    }
  });
  if (!any_updated_) return;
  for (int layer = 0; layer < dataflow_->num_layers; ++layer) {
    if (placement_.rank[layer] != rank || updated_[layer]) continue;
    throw BrokenRule("not every layer is updated", "an update of " + layer_name(layer),
                     "none on rank " + std::to_string(rank));
  }
  for (std::size_t t = 0; t < dataflow_->ties.size(); ++t) {
    const int owner = placement_.rank[dataflow_->ties[t].owner];
    for (const int user : dataflow_->ties[t].users) {
      if (placement_.rank[user] != rank || owner == rank) continue;
      const Action receive{.op = Op::kReceiveTiedWeight,
                           .value = static_cast<int>(t),
                           .consumer = user,
                           .peer = owner};
      if (messages_.was_received(receive, rank)) continue;
      throw BrokenRule("a tied weight does not come back", to_string(receive),
                       "the end of the program");
    }
  }
}

}  // namespace strata
