// Weights, optimizer states and gradients by name, and loading them. Part of Trainer.
#include <algorithm>

#include "strata/base/errors.h"
#include "strata/nn/graph/weight_name.h"
#include "strata/optim/one_bit_adam.h"
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

std::vector<NamedState> Trainer::weight_states(const std::vector<int>& layers, bool owned) {
  std::vector<NamedState> states;
  for_each_weight(
      layers, StateKind::kWeightShard | StateKind::kOptimizer, owned,
      [&](const std::string& name, std::size_t i, const PinPtr& pin, FlatRange wanted) {
        states.push_back(state_of(name, pin, i, pin->master(), wanted, groups_[Axis::kTensor]));
      });
  return states;
}

// Each replica owns its own whole state. If they are saved, all replicas list all of them.
void Trainer::add_state_of_each_replica(std::vector<NamedState>& states, const std::string& name,
                                        const std::shared_ptr<const Pin>& pin, std::size_t weight,
                                        const at::Tensor& flat, bool owned) const {
  const Group &tp = groups_[Axis::kTensor], &replicas = groups_.weights;
  const bool elsewhere = owned && tp.rank() > 0 && !is_split(pin->layout().specs[weight]);
  const FlatRange whole = elsewhere ? FlatRange{} : FlatRange{0, pin->layout().own_numel};
  for (int replica = 0; replica < replicas.size(); ++replica) {
    const bool own = replica == replicas.rank();
    if (!own && !owned) continue;
    states.push_back(state_of(name + "." + std::to_string(replica), pin, weight, {flat},
                              own ? whole : FlatRange{}, tp));
    states.back().replicas = replicas.size();
  }
}

std::vector<NamedState> Trainer::slot_states(const std::vector<int>& layers, bool owned) {
  const std::vector<std::string> names = optimizer_->slot_names();
  std::vector<NamedState> states;
  for_each_weight(
      layers, StateKind::kOptimizer, owned,
      [&](const std::string& name, std::size_t i, const PinPtr& pin, FlatRange wanted) {
        if (is_statistic(pin, i)) return;
        const std::vector<at::Tensor> slots = pin->slots();
        for (std::size_t slot = 0; slot < names.size(); ++slot) {
          const std::string full = name + "." + names[slot];
          if (names[slot] == kWorkerError)
            add_state_of_each_replica(states, full, pin, i, slots[slot], owned);
          else
            states.push_back(state_of(full, pin, i, {slots[slot]}, wanted, groups_[Axis::kTensor]));
        }
      });
  const bool first = !layers.empty() && !layers_.empty() && layers.front() == layers_.front();
  if (first && options_.precision == at::kHalf &&
      (!owned || groups_[Axis::kPipeline].rank() == 0)) {
    remember_scale();
    NamedState scale{.name = "loss_scale", .shape = {3}, .local = {}, .runs = {}};
    if (!owned || groups_.world.rank() == 0) {
      scale.local = scale_state_;
      scale.runs = {{0, 0, 3}};
    }
    states.push_back(std::move(scale));
  }
  return states;
}

std::vector<NamedState> Trainer::weights() { return weight_states(layers_, false); }
std::vector<NamedState> Trainer::slots() { return slot_states(layers_, false); }
std::vector<NamedState> Trainer::owned_weights() { return weight_states(layers_, true); }
std::vector<NamedState> Trainer::owned_slots() { return slot_states(layers_, true); }

void Trainer::fill(const FillStates& fill) {
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
                    NamedState& state = states.emplace_back(state_of(
                        name, pin, i, {pin->gradient_shard()}, wanted, groups_[Axis::kTensor]));
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
