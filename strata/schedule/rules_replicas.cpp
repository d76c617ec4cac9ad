// Rules for ties, fetched weights, and reduced and offloaded gradients. Part of Rules.
#include "strata/schedule/rules.h"

namespace strata {

void Rules::add_ties(const Action& action, int rank) {
  const Tie& tie = dataflow_->ties[action.value];
  check_backwards_done(action, tie.owner);
  for (const int user : tie.users) {
    const int peer = placement_.rank[user];
    if (peer == rank) {
      check_backwards_done(action, user);
      continue;
    }
    const Action receive{
        .op = Op::kReceiveTiedGradient, .value = action.value, .consumer = user, .peer = peer};
    if (messages_.was_received(receive, rank)) continue;
    throw BrokenRule("tied gradients are added before one of them is there",
                     to_string(receive) + " before", to_string(action));
  }
  added_[action.value] = true;
}

void Rules::check_own_layers(const Action& action, int rank) const {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (layer >= 0 && layer < dataflow_->num_layers && placement_.rank[layer] == rank) continue;
    throw BrokenRule("a rank exchanges a layer that is not its own", "a layer of this rank",
                     to_string(action));
  }
}

bool Rules::is_away(int layer) const {
  return options_->shards[layer].weights || options_->tiers[layer].fetches_weights();
}

void Rules::fetch(const Action& action, int rank) {
  check_own_layers(action, rank);
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    // A layer that the host updates and that stays on the device is fetched after its update.
    if (!is_away(layer) && updated_[layer] && options_->tiers[layer].updates_on_host()) continue;
    if (!is_away(layer)) {
      throw BrokenRule("weights are fetched that are already on the device",
                       "a layer whose weights leave the device", to_string(action));
    }
    if (held_[layer]) {
      throw BrokenRule("weights are fetched twice",
                       "a release of " + layer_name(layer) + " between", to_string(action));
    }
    held_[layer] = true;
  }
}

void Rules::release(const Action& action) {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (!held_[layer]) {
      throw BrokenRule("weights are released that were not fetched", "a fetch before",
                       to_string(action));
    }
    held_[layer] = false;
  }
}

void Rules::move_activations(const Action& action, int rank) {
  check_own_layers(action, rank);
  const bool leave = action.op == Op::kOffloadActivations;
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    State& state_here = state(layer, action.micro_batch);
    if (!options_->tiers[layer].offloads_activations() ||
        state_here != (leave ? State::kForward : State::kAway)) {
      throw BrokenRule(leave ? "activations are offloaded out of place"
                             : "activations are fetched that are not on the host",
                       leave
                           ? "once, between a forward and its recompute, of a layer that keeps its "
                             "inputs on the host"
                           : "their offload before",
                       to_string(action));
    }
    state_here = leave ? State::kAway : State::kForward;
  }
}

void Rules::reduce(const Action& action, int rank) {
  check_own_layers(action, rank);
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (action.micro_batch < 0) {
      check_backwards_done(action, layer);
    } else if (next_backward_[layer] != action.micro_batch + 1 ||
               next_input_[layer] != next_backward_[layer]) {
      throw BrokenRule("a gradient is reduced that is not the last one made",
                       "the reduction of micro-batch " + std::to_string(next_backward_[layer] - 1),
                       to_string(action));
    }
    for (const int t : owned_ties_[layer]) {
      if (added_[t]) continue;
      throw BrokenRule("a gradient is reduced before tied gradients are added to it",
                       "the sum of tie t" + std::to_string(t) + " before", to_string(action));
    }
    if (under_way_[layer]) {
      throw BrokenRule("two reductions of a layer are under way", "an await between",
                       to_string(action));
    }
    under_way_[layer] = true;
    reduced_[layer] = next_backward_[layer];
  }
}

void Rules::await(const Action& action) {
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    if (!under_way_[layer]) {
      throw BrokenRule("a reduction is awaited that was not started", "its start before",
                       to_string(action));
    }
    under_way_[layer] = false;
  }
}

void Rules::offload(const Action& action, int rank) {
  check_own_layers(action, rank);
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    check_backwards_done(action, layer);
    for (const int t : owned_ties_[layer]) {
      if (added_[t]) continue;
      throw BrokenRule("a gradient is offloaded before tied gradients are added to it",
                       "the sum of tie t" + std::to_string(t) + " before", to_string(action));
    }
    if (!options_->tiers[layer].updates_on_host() || offloaded_[layer]) {
      throw BrokenRule("an offload is out of place",
                       "one a step, of a layer that is updated on the host", to_string(action));
    }
    offloaded_[layer] = true;
  }
}

// A reduction moves gradients to where they live, so only layers without one are checked.
void Rules::check_offloaded(const Action& action, int layer) const {
  if (!options_->backward || options_->shards[layer].reduced || offloaded_[layer]) return;
  throw BrokenRule("a gradient is used before it is on the host",
                   "the offload of " + layer_name(layer) + " before", to_string(action));
}

void Rules::check_reduced(const Action& action, int layer) const {
  if (!options_->backward || !options_->shards[layer].reduced) return;
  if (!under_way_[layer] && reduced_[layer] == schedule_->num_micro_batches) return;
  throw BrokenRule("the norm is computed before gradients are reduced",
                   "the reduction of " + layer_name(layer) + " awaited before", to_string(action));
}

}  // namespace strata
