// Invariants: a kind with pins is here; a transfer exists exactly while a kind is coming or
// leaving. Where weights stay whole there is no shard beside them: kWeightShard then means kWeights.
#include "strata/tier/store.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/device/account.h"

namespace strata {
namespace {

constexpr StateKind kKinds[] = {StateKind::kWeightShard, StateKind::kWeights, StateKind::kGradients,
                                StateKind::kGradientShard, StateKind::kOptimizer};

// What only the host has, though the device brings it there or fetches copies of it.
bool lives_on_host(const LayerState& state, StateKind kind) {
  return state.placement.tiers.updates_on_host() && kind != StateKind::kWeights &&
         kind != StateKind::kGradients;
}

}  // namespace

LayerStore::LayerStore(std::unique_ptr<StateBackend> backend, Residency residency, Stream compute,
                       MemoryAccount* host)
    : backend_(std::move(backend)),
      residency_(residency),
      host_(host),
      stream_(std::move(compute)) {}

// Memory that a copy still writes to is given out again behind it. What peers send may never come.
LayerStore::~LayerStore() {
  if (!stream_.queue()) return;
  for (auto& [layer, entry] : entries_) {
    const ShardPlacement& placement = entry.state.placement;
    if (!placement.tiers.updates_on_host() || placement.gathered_weights) continue;
    for (const StateKind kind : kKinds) {
      try {
        finish(entry, kind);
      } catch (const std::exception&) {
        // Whoever asked for it knows.
      }
    }
  }
}

void LayerStore::insert(int layer, const LayerLayout& layout, const ShardPlacement& placement) {
  Entry entry;
  LayerState& state = entry.state;
  state.layer = layer;
  state.layout = &layout;
  state.placement = placement;
  state.make_buffers(stream_, host_);
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    const std::string& tie = layout.specs[i].tie;
    at::Tensor bytes;
    if (!place.borrowed) {
      bytes = state.view_of(state.weights, i);
      if (!tie.empty()) owners_of_ties_[tie] = {layer, i};
    } else if (const auto owner = owners_of_ties_.find(tie); owner != owners_of_ties_.end()) {
      const auto [owning_layer, weight] = owner->second;
      bytes = this->entry(owning_layer).state.leaves[weight];
      entry.owners.push_back(owning_layer);
    } else {
      bytes = at::zeros(place.shape, stream_.device().options(placement.dtype));
    }
    at::Tensor leaf = bytes.detach().requires_grad_(placement.trains);
    // Preset, so that gradients accumulate in place in the flat buffer.
    if (placement.trains) leaf.mutable_grad() = state.preset_gradient(i);
    state.leaves.push_back(std::move(leaf));
  }
  entries_.insert_or_assign(layer, std::move(entry));
}

const LayerStore::Entry& LayerStore::entry(int layer) const {
  const auto found = entries_.find(layer);
  STRATA_CHECK(found != entries_.end(), "tier.entry");
  return found->second;
}

LayerStore::Entry& LayerStore::entry(int layer) {
  return const_cast<Entry&>(std::as_const(*this).entry(layer));
}

// What there is of what is asked for.
StateKinds LayerStore::kinds_of(const Entry& entry, StateKinds requested) const {
  const ShardPlacement& placement = entry.state.placement;
  const StateKinds training =
      StateKind::kGradients | StateKind::kGradientShard | StateKind::kOptimizer;
  STRATA_CHECK(placement.trains || requested - training == requested, "tier.kinds");
  if (placement.tiers.updates_on_host()) return requested;
  if (placement.whole_weights && requested.contains(StateKind::kWeightShard))
    requested = (requested - StateKind::kWeightShard) | StateKind::kWeights;
  if (requested.contains(StateKind::kGradientShard))
    requested = (requested - StateKind::kGradientShard) | StateKind::kGradients;
  return requested;
}

void LayerStore::start(Entry& entry, StateKind kind) {
  Status& status = entry.status[static_cast<int>(kind)];
  if (status.where == Where::kLeaving) finish(entry, kind);
  if (status.where != Where::kAway) return;
  status.transfer = backend_->fetch(entry.state, kind);
  status.where = status.transfer ? Where::kComing : Where::kHere;
}

// Waits for the transfer under way, if there is one.
void LayerStore::finish(Entry& entry, StateKind kind) {
  Status& status = entry.status[static_cast<int>(kind)];
  if (!status.transfer) return;
  const std::unique_ptr<Transfer> transfer = std::move(status.transfer);
  const Where then = status.where == Where::kComing ? Where::kHere : Where::kAway;
  status.where = Where::kAway;  // if it fails
  const double begin = now_seconds();
  stream_.wait(transfer->finish());
  waited(entry.state, kind, begin);
  status.where = then;
}

void LayerStore::wait(const LayerState& state, StateKind kind, const Completion& event) {
  const bool on_host = lives_on_host(state, kind);
  const auto wait = [&] { on_host ? event.wait() : stream_.wait(event); };
  if (event.ready()) return wait();  // it may have failed
  const double begin = now_seconds();
  wait();
  waited(state, kind, begin);
}

void LayerStore::waited(const LayerState& state, StateKind kind, double begin_seconds) {
  waited_[static_cast<int>(kind)] += now_seconds() - begin_seconds;
  const bool gradients = kind == StateKind::kGradients || kind == StateKind::kGradientShard;
  if (trace_)
    trace_->add_wait(gradients ? Op::kOffloadGradients : Op::kPrefetchWeights, state.layer,
                     begin_seconds);
}

// The stream waits for a copy here until the host has done what goes before it.
void LayerStore::bring_shard(LayerState& state, StateKind kind, std::int64_t begin,
                             const at::Tensor& to) {
  const double began = now_seconds();
  stream_.wait(backend_->bring_shard(state, kind, begin, to));
  waited(state, kind, began);
}

void LayerStore::offload_gradients(LayerState& state, std::int64_t begin, const at::Tensor& from) {
  const double began = now_seconds();
  backend_->offload_gradients(state, begin, from);  // may wait for the one before
  waited(state, StateKind::kGradientShard, began);
}

void LayerStore::leave(Entry& entry, StateKind kind) {
  Status& status = entry.status[static_cast<int>(kind)];
  STRATA_CHECK_EQ(status.pins, 0, "tier.release");
  // Peers count on this rank's part in what has started.
  if (status.where == Where::kComing) finish(entry, kind);
  if (status.where != Where::kHere) return;
  const double begin = now_seconds();
  status.transfer = backend_->evict(entry.state, kind);  // may wait for the one before
  waited(entry.state, kind, begin);
  status.where = status.transfer ? Where::kLeaving : Where::kAway;
}

void LayerStore::prefetch(int layer, StateKinds kinds) {
  Entry& entry = this->entry(layer);
  kinds = kinds_of(entry, kinds);
  for (const StateKind kind : kKinds) {
    if (!kinds.contains(kind)) continue;
    const bool away = entry.status[static_cast<int>(kind)].where == Where::kAway;
    if (kind == StateKind::kWeights && entry.state.placement.gathered_weights && away) {
      // Peers copy this rank's shard, so it is here when theirs are asked for.
      const Pin shard = acquire_to_copy(layer, StateKind::kWeightShard);
      const bool on_disk = entry.state.placement.on_disk(StateKind::kWeightShard);
      const AccountScope account(on_disk ? host_ : current_memory_account(), DeviceKind::kCpu);
      start(entry, kind);
    } else {
      start(entry, kind);
    }
  }
}

Pin LayerStore::acquire(int layer, StateKinds kinds) {
  std::vector<Completion> pending;
  Pin pin = acquire(layer, kinds, pending);
  LayerState& state = entry(layer).state;
  for (const StateKind kind : kKinds) {
    if (!pin.kinds_.contains(kind)) continue;
    wait(state, kind, state.pending_on(kind));
    state.pending_on(kind) = {};
    if (kind == StateKind::kOptimizer) wait(state, kind, state.busy);
  }
  return pin;
}

Pin LayerStore::acquire_to_copy(int layer, StateKinds kinds) {
  if (!shards_travel(entry(layer).state)) return acquire(layer, kinds);
  std::vector<Completion> pending;
  return acquire(layer, kinds, pending);
}

bool LayerStore::shards_travel(const LayerState& state) const {
  return stream_.queue() && state.placement.tiers.updates_on_host();
}

Pin LayerStore::acquire(int layer, StateKinds kinds, std::vector<Completion>& pending) {
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  Entry& entry = this->entry(layer);
  kinds = kinds_of(entry, kinds);
  prefetch(layer, kinds);
  Pin pin(*this, entry.state, {});
  for (const StateKind kind : kKinds) {
    if (!kinds.contains(kind)) continue;
    finish(entry, kind);
    pending.push_back(entry.state.pending_on(kind));
    if (kind == StateKind::kOptimizer) pending.push_back(entry.state.busy);
    ++entry.status[static_cast<int>(kind)].pins;
    pin.kinds_ = pin.kinds_ | kind;
  }
  if (kinds.contains(StateKind::kWeights))
    for (const int owner : entry.owners) pin.owners_.push_back(acquire(owner, StateKind::kWeights));
  return pin;
}

void LayerStore::written(int layer, StateKinds kinds, const Completion& event) {
  Entry& entry = this->entry(layer);
  for (const StateKind kind : kKinds)
    if (kinds.contains(kind))
      entry.state.pending_on(kind) = backend_->written(entry.state, kind, event);
  if (kinds.contains(StateKind::kWeightShard)) outdate_weights(layer);
}

void LayerStore::read_until(int layer, StateKind kind, const Completion& event) {
  LayerState& state = entry(layer).state;
  state.pending_on(kind) = backend_->read_until(state, kind, event);
}

void LayerStore::outdate_weights(int layer) {
  Entry& entry = this->entry(layer);
  const ShardPlacement& placement = entry.state.placement;
  if (placement.gathered_weights) return;
  if (!placement.tiers.updates_on_host() || placement.shard.size() < entry.state.own().size())
    return;
  // What the device has of it is the past.
  Status& weights = entry.status[static_cast<int>(StateKind::kWeights)];
  STRATA_CHECK_EQ(weights.pins, 0, "tier.written");
  if (!placement.whole_weights) leave(entry, StateKind::kWeights);
  finish(entry, StateKind::kWeights);
  weights.where = Where::kAway;
}

void LayerStore::release(int layer, StateKinds kinds) {
  Entry& entry = this->entry(layer);
  kinds = kinds_of(entry, kinds);
  for (const StateKind kind : kKinds)
    if (kinds.contains(kind)) leave(entry, kind);
}

void LayerStore::unpin(int layer, StateKinds kinds) noexcept {
  Entry& entry = this->entry(layer);
  for (const StateKind kind : kKinds) {
    if (!kinds.contains(kind)) continue;
    if (--entry.status[static_cast<int>(kind)].pins > 0) continue;
    const bool stays =
        residency_ == Residency::kUntilReleased && !entry.state.placement.on_disk(kind);
    try {
      // Such layers are no part of a recording (schedule/segments.cpp): the event is.
      if (kind == StateKind::kWeights && entry.state.placement.tiers.updates_on_host())
        entry.state.used = stream_.record();
      if (!stays) leave(entry, kind);
    } catch (...) {
      failed_ = std::current_exception();
    }
  }
}

std::vector<int> LayerStore::layers() const {
  std::vector<int> layers;
  for (const auto& [layer, entry] : entries_) layers.push_back(layer);
  return layers;
}

}  // namespace strata
