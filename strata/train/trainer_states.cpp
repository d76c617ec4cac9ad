// Weights, optimizer states and gradients by name, and loading them. Part of Trainer.
#include <algorithm>

#include "strata/base/errors.h"
#include "strata/nn/graph/weight_name.h"
#include "strata/optim/one_bit_adam.h"
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
  return owned && outer_ && outer_->replicas().rank() > 0 ? FlatRange{} : wanted;
}

// A round begins with the loaded weights, unless there are states of another.
std::vector<NamedState> Trainer::weight_states(const std::vector<int>& layers, bool owned) {
  std::vector<NamedState> states;
  const Group& tp = groups_[Axis::kTensor];
  for_each_weight(
      layers, StateKind::kWeightShard | StateKind::kOptimizer, owned,
      [&](const std::string& name, std::size_t i, const PinPtr& pin, FlatRange wanted) {
        states.push_back(state_of(name, pin, i, pin->master(), common(wanted, owned), tp));
        if (owned || !outer_ || is_statistic(pin, i)) return;
        const at::Tensor& shared = outer_->states(pin->layer()).shared;
        if (shared.defined()) states.push_back(state_of(name, pin, i, {shared}, wanted, tp));
      });
  return states;
}

// Each replica owns its own state. If they are saved, all replicas list all of them.
void Trainer::add_state_of_each_replica(std::vector<NamedState>& states, const NamedState& own,
                                        const Group& replicas, bool owned) const {
  for (int replica = 0; replica < replicas.size(); ++replica) {
    const bool is_own = replica == replicas.rank();
    if (!is_own && !owned) continue;
    NamedState& state = states.emplace_back(own);
    state.name += "." + std::to_string(replica);
    state.replicas = replicas.size();
    if (is_own) continue;
    state.local.reset();
    state.remainder.reset();
    state.runs.clear();
    state.pin.reset();
  }
}

// Replicas list their own weights if these may differ. A checkpoint from the end of a round, or of
// a run without outer steps, has none: then they have the model's.
void Trainer::add_outer_states(std::vector<NamedState>& states, const std::string& name,
                               const std::shared_ptr<const Pin>& pin, std::size_t weight,
                               FlatRange wanted, bool owned) {
  const Group& tp = groups_[Axis::kTensor];
  if (!owned || outer_->differ_after(steps_done_)) {
    NamedState own =
        state_of(name + "." + kReplicaWeight, pin, weight, outer_->own_weights(*pin), wanted, tp);
    own.may_be_missing = true;
    add_state_of_each_replica(states, own, outer_->replicas(), owned);
  }
  if (is_statistic(pin, weight)) return;
  const OuterSteps::States& outer = outer_->states(pin->layer());
  for (const auto& [kind, flat] :
       {std::pair(kOuterWeight, outer.shared), std::pair(kOuterMomentum, outer.momenta)}) {
    if (!flat.defined()) continue;
    states.push_back(state_of(name + "." + kind, pin, weight, {flat}, common(wanted, owned), tp));
    states.back().may_be_missing = true;
  }
}

std::vector<NamedState> Trainer::slot_states(const std::vector<int>& layers, bool owned) {
  const std::vector<std::string> names = optimizer_->slot_names();
  std::vector<NamedState> states;
  const Group& tp = groups_[Axis::kTensor];
  const auto add = [&](const std::string& name, std::size_t i, const PinPtr& pin,
                       FlatRange wanted) {
    if (outer_) add_outer_states(states, name, pin, i, wanted, owned);
    if (is_statistic(pin, i)) return;
    const std::vector<at::Tensor> slots = pin->slots();
    for (std::size_t slot = 0; slot < names.size(); ++slot) {
      const std::string full = name + "." + names[slot];
      const bool is_error = names[slot] == kWorkerError;
      const bool elsewhere = owned && tp.rank() > 0 && !is_split(pin->layout().specs[i]);
      // Errors differ although all ranks with the same weights make an update together.
      const FlatRange whole = elsewhere ? FlatRange{} : FlatRange{0, pin->layout().own_numel};
      NamedState own = state_of(full, pin, i, {slots[slot]}, is_error ? whole : wanted, tp);
      if (is_error || outer_)
        add_state_of_each_replica(states, own, is_error ? groups_.weights : groups_[Axis::kData],
                                  owned);
      else
        states.push_back(std::move(own));
    }
  };
  for_each_weight(layers, outer_ ? OuterSteps::kPinned : StateKinds(StateKind::kOptimizer), owned,
                  add);
  const bool first = !layers.empty() && !layers_.empty() && layers.front() == layers_.front();
  if (first && options_.precision == at::kHalf &&
      (!owned || groups_[Axis::kPipeline].rank() == 0)) {
    remember_scale();
    NamedState scale{.name = "loss_scale", .shape = {3}, .local = {}, .runs = {}};
    if (!owned || groups_.world.rank() == 0) {
      scale.local = scale_state_;
      scale.runs = {{0, 0, 3}};
    }
    if (outer_)
      add_state_of_each_replica(states, scale, outer_->replicas(), owned);
    else
      states.push_back(std::move(scale));
  }
  return states;
}

std::vector<NamedState> Trainer::weights() { return weight_states(layers_, false); }
std::vector<NamedState> Trainer::slots() { return slot_states(layers_, false); }
std::vector<NamedState> Trainer::owned_weights() {
  use_mean_weights();
  return weight_states(layers_, true);
}
std::vector<NamedState> Trainer::owned_weights(int layer) {
  use_mean_weights();
  return weight_states({layer}, true);
}
std::vector<NamedState> Trainer::owned_slots() { return slot_states(layers_, true); }

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
