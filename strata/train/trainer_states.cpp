// Weights, optimizer states and gradients by name, and loading them. Part of Trainer.
#include <algorithm>

#include "strata/base/errors.h"
#include "strata/nn/graph/weight_name.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/one_bit_lamb.h"
#include "strata/train/outer_steps.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

using PinPtr = std::shared_ptr<const Pin>;

// The part of a weight in `wanted`, in elements of its layer. `flat` holds the elements of this
// rank's shard.
NamedState state_of(std::string name, const PinPtr& pin, std::size_t weight,
                    const MasterWeights& flat, FlatRange wanted, const Group& tp) {
  const LayerLayout& layout = pin->layout();
  const FlatRange held = pin->placement().shard;
  const WeightSpec& spec = layout.specs[weight];
  const WeightPlacement& place = layout.placements[weight];
  const std::int64_t begin = std::max({held.begin, wanted.begin, place.offset});
  const std::int64_t end =
      std::max(begin, std::min({held.end, wanted.end, place.offset + place.numel}));
  NamedState state{.name = std::move(name), .shape = spec.shape, .local = {}, .runs = {}};
  if (begin == end) return state;
  state.pin = pin;
  const MasterWeights part = flat.narrow(begin - held.begin, end - begin);
  state.local = part.weights;
  state.remainder = part.remainder;
  state.runs =
      clip_runs(slice_runs(spec, tp.rank(), tp.size()), begin - place.offset, end - place.offset);
  for (Run& run : state.runs) run.local -= begin - place.offset;
  return state;
}

bool is_split(const WeightSpec& spec) { return spec.split.axis >= 0; }

// The optimizer ignores it and it has no gradient.
bool is_statistic(const PinPtr& pin, std::size_t weight) {
  return pin->layout().specs[weight].statistic != Statistic::kNone;
}

}  // namespace

// Calls f(name, weight, pin, wanted) for the weights of this rank's layers that it owns a use of.
// `owned`: only the elements that this rank owns.
template <typename F>
void Trainer::for_each_weight(const std::vector<int>& layers, StateKinds kinds, bool owned, F f) {
  for (const int layer : layers) {
    const auto pin = std::make_shared<const Pin>(store_.acquire(layer, kinds));
    const LayerLayout& layout = pin->layout();
    const FlatRange part = machine_->part_of(layer);
    for (std::size_t i = 0; i < layout.specs.size(); ++i) {
      if (layout.placements[i].borrowed) continue;
      FlatRange wanted = owned ? part : FlatRange{0, layout.own_numel};
      if (owned && groups_[Axis::kTensor].rank() > 0 && !is_split(layout.specs[i])) wanted = {0, 0};
      f(weight_name(model_, layer, layout.specs[i]), i, pin, wanted);
    }
  }
}

// States that all replicas have belong to the first, if replicas train apart.
FlatRange Trainer::common(FlatRange wanted, bool owned) const {
  return owned && outer_ && mean_->replicas().rank() > 0 ? FlatRange{} : wanted;
}

// A round begins with the loaded weights, unless there are states of another.
std::vector<NamedState> Trainer::weight_states(const std::vector<int>& layers, bool owned) {
  std::vector<NamedState> states;
  const Group& tp = groups_[Axis::kTensor];
  for_each_weight(
      layers, StateKind::kWeightShard | StateKind::kOptimizer, owned,
      [&](const std::string& name, std::size_t i, const PinPtr& pin, FlatRange wanted) {
        states.push_back(state_of(name, pin, i, pin->master(), common(wanted, owned), tp));
        if (owned || !mean_ || is_statistic(pin, i)) return;
        const at::Tensor shared =
            outer_ ? outer_->states(pin->layer()).shared : pin->slots().at(kSharedSlot);
        if (shared.defined()) states.push_back(state_of(name, pin, i, {shared}, wanted, tp));
      });
  return states;
}

// Each replica, or group of replicas that share shards, owns its own state. If they are saved, all
// list all of them.
void Trainer::add_state_of_each_replica(std::vector<NamedState>& states, const NamedState& own,
                                        const Group& replicas, bool owned) const {
  for (int replica = 0; replica < replicas.size(); ++replica) {
    const bool is_own = replica == replicas.rank();
    if (!is_own && !owned) continue;
    NamedState& state = states.emplace_back(own);
    state.name += "." + std::to_string(replica);
    state.replicas = replicas.size();
    state.replica = replica;
    if (is_own) continue;
    state.local.reset();
    state.remainder.reset();
    state.runs.clear();
    state.pin.reset();
  }
}

bool Trainer::has_rounds() const { return mean_ && mean_->replicas().size() > 1; }
bool Trainer::in_sign_round() const { return mean_ && !outer_ && in_round(); }

// Whether replicas are inside a round, and have weights of their own.
bool Trainer::in_round() const {
  return outer_ ? replicas_differ() : machine_->sign_round().updates > 0;
}

// The elements of a layer that this rank saves or loads of a state of its own.
FlatRange Trainer::of_own(const Pin& pin, std::size_t weight, FlatRange wanted, bool owned) const {
  if (outer_) return wanted;
  const bool elsewhere =
      owned && groups_[Axis::kTensor].rank() > 0 && !is_split(pin.layout().specs[weight]);
  return elsewhere ? FlatRange{} : FlatRange{0, pin.layout().own_numel};
}

// A checkpoint of equal weights has none of replicas: then they have the model's.
void Trainer::add_replica_weight(std::vector<NamedState>& states, const std::string& name,
                                 const PinPtr& pin, std::size_t weight, FlatRange wanted,
                                 bool owned) const {
  if (owned && !in_round()) return;
  NamedState own = state_of(name + "." + kReplicaWeight, pin, weight, mean_->own_weights(*pin),
                            of_own(*pin, weight, wanted, owned), groups_[Axis::kTensor]);
  own.may_be_missing = true;
  add_state_of_each_replica(states, own, mean_->replicas(), owned);
}

void Trainer::add_outer_states(std::vector<NamedState>& states, const std::string& name,
                               const PinPtr& pin, std::size_t weight, FlatRange wanted,
                               bool owned) const {
  const OuterSteps::States& outer = outer_->states(pin->layer());
  for (const auto& [kind, flat] :
       {std::pair(kOuterWeight, outer.shared), std::pair(kOuterMomentum, outer.momenta)}) {
    if (!flat.defined()) continue;
    states.push_back(state_of(name + "." + kind, pin, weight, {flat}, common(wanted, owned),
                              groups_[Axis::kTensor]));
    states.back().may_be_missing = true;
  }
}

// Whether the replicas' values of an optimizer state differ. A state that is loaded may.
bool Trainer::is_of_each_replica(const std::string& slot, bool owned) const {
  if (outer_ || slot == kWorkerError) return true;
  return mean_ && slot == kMomentum && (!owned || in_round());
}

void Trainer::add_optimizer_slots(std::vector<NamedState>& states, const std::string& name,
                                  const PinPtr& pin, std::size_t weight, FlatRange wanted,
                                  bool owned) const {
  const std::vector<std::string> names = optimizer_->slot_names();
  const std::vector<at::Tensor> slots = pin->slots();
  for (std::size_t slot = 0; slot < names.size(); ++slot) {
    const bool of_round = names[slot] == kSharedWeight;
    if (of_round && owned && !in_round()) continue;
    const bool each = is_of_each_replica(names[slot], owned);
    NamedState state =
        state_of(name + "." + names[slot], pin, weight, {slots[slot]},
                 each ? of_own(*pin, weight, wanted, owned) : wanted, groups_[Axis::kTensor]);
    state.may_be_missing = of_round;
    if (each)
      add_state_of_each_replica(states, state, outer_ ? mean_->replicas() : groups_.replica, owned);
    else
      states.push_back(std::move(state));
  }
}

// All ranks of a layer have the same; the first of them saves it.
void Trainer::add_frozen_ratio(std::vector<NamedState>& states, const std::string& name,
                               const Pin& pin, std::size_t weight, bool owned) {
  const at::Tensor ratio = machine_->frozen_ratio(pin.layer(), weight);
  if (!ratio.defined()) return;
  NamedState& state = states.emplace_back(
      NamedState{.name = name + "." + kFrozenRatio, .shape = {2}, .local = {}, .runs = {}});
  if (owned && (groups_.weights.rank() > 0 || groups_[Axis::kTensor].rank() > 0)) return;
  state.local = ratio;
  state.runs = {{0, 0, 2}};
}

// What a run has once: with the first layer.
void Trainer::add_run_states(std::vector<NamedState>& states, bool owned) {
  if (owned && groups_[Axis::kPipeline].rank() > 0) return;
  const auto state_named = [&](const char* name, const at::Tensor& values) {
    NamedState state{.name = name, .shape = {values.numel()}, .local = {}, .runs = {}};
    if (owned && groups_.world.rank() > 0) return state;
    state.local = values;
    state.runs = {{0, 0, values.numel()}};
    return state;
  };
  if (options_.precision == at::kHalf) {
    remember_scale();
    const NamedState scale = state_named("loss_scale", scale_state_);
    if (outer_)
      add_state_of_each_replica(states, scale, mean_->replicas(), owned);
    else
      states.push_back(scale);
  }
  if (mean_ && !outer_ && (!owned || in_round())) {
    remember_round();
    states.push_back(state_named("sign_round", round_state_));
    states.back().may_be_missing = true;
  }
}

std::vector<NamedState> Trainer::slot_states(const std::vector<int>& layers, bool owned) {
  std::vector<NamedState> states;
  for_each_weight(layers, mean_ ? MeanWeights::kPinned : StateKinds(StateKind::kOptimizer), owned,
                  [&](const std::string& name, std::size_t i, const PinPtr& pin, FlatRange wanted) {
                    if (mean_) add_replica_weight(states, name, pin, i, wanted, owned);
                    if (is_statistic(pin, i)) return;
                    if (outer_) add_outer_states(states, name, pin, i, wanted, owned);
                    add_optimizer_slots(states, name, pin, i, wanted, owned);
                    add_frozen_ratio(states, name, *pin, i, owned);
                  });
  if (!layers.empty() && !layers_.empty() && layers.front() == layers_.front())
    add_run_states(states, owned);
  return states;
}

std::vector<NamedState> Trainer::weights() { return weight_states(layers_, false); }
std::vector<NamedState> Trainer::slots() { return slot_states(layers_, false); }

// States are listed where they lie while the mean has the place of own weights: a caller may list
// weights and slots in any order.
std::vector<NamedState> Trainer::owned_slots() {
  use_mean_weights();
  return slot_states(layers_, true);
}
std::vector<NamedState> Trainer::owned_slots(int layer) {
  use_mean_weights();
  return slot_states({layer}, true);
}
std::vector<NamedState> Trainer::owned_weights() {
  use_mean_weights();
  return weight_states(layers_, true);
}
std::vector<NamedState> Trainer::owned_weights(int layer) {
  use_mean_weights();
  return weight_states({layer}, true);
}

void Trainer::fill(const FillStates& fill) {
  use_own_weights();
  for (const int layer : layers_) {
    fill(weight_states({layer}, false), slot_states({layer}, false));
    store_.written(layer, StateKind::kWeightShard | StateKind::kOptimizer, {});
  }
  loaded();
}

// The host holds few layers' gradients at a time if they live on disk, so those are copies.
std::vector<NamedState> Trainer::owned_gradients() {
  std::vector<NamedState> states;
  for_each_weight(layers_, StateKind::kGradientShard, true,
                  [&](const std::string& name, std::size_t i, const PinPtr& pin, FlatRange wanted) {
                    if (is_statistic(pin, i)) return;
                    NamedState& state =
                        states.emplace_back(state_of(name, pin, i, {pin->gradient_shard()},
                                                     common(wanted, true), groups_[Axis::kTensor]));
                    if (!state.pin || !pin->placement().on_disk(StateKind::kGradientShard)) return;
                    const UnchargedScope uncharged;
                    state.local = state.local.clone();
                    state.pin.reset();
                  });
  return states;
}

TrainingPosition load_trainer(Trainer& trainer, const CheckpointModel& model,
                              const std::string& path) {
  const StateLoader loader(path, model, SameModel::kAll);
  const TrainingPosition position = loader.position();
  trainer.fill([&](const std::vector<NamedState>& weights, const std::vector<NamedState>& slots) {
    loader.read_weights(weights);
    loader.read_slots(slots);
  });
  trainer.set_steps_done(position.steps_done);
  return position;
}

void load_weights(Trainer& trainer, const CheckpointModel& model, const std::string& path) {
  const StateLoader loader(path, model, SameModel::kWeights);
  trainer.fill([&](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
    loader.read_weights(weights);
  });
}

}  // namespace strata
