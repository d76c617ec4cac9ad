// Where weights stay whole on the device there is no separate shard: kWeightShard then means
// kWeights.
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

bool lives_on_host(Home home) { return home == Home::kHost || home == Home::kDisk; }
bool is_copy(Home home) { return home == Home::kHostCopy || home == Home::kDiskCopy; }

}  // namespace

LayerStore::LayerStore(Backends backends, Residency residency, Stream compute, MemoryAccount* host)
    : backends_(std::move(backends)),
      residency_(residency),
      host_account_(host),
      stream_(std::move(compute)) {}

// An asynchronous device reuses memory after the copies to it. Transfers from peers may never end.
LayerStore::~LayerStore() {
  if (!stream_.queue()) return;
  for (auto& [layer, entry] : entries_) {
    for (const StateKind kind : kKinds) {
      const Home home = entry.state.home(kind);
      if (home == Home::kDevice || home == Home::kPeers) continue;
      try {
        finish(entry, kind);
      } catch (const std::exception&) {
        // The caller that waited for it has got the error.
      }
    }
  }
}

StateBackend* LayerStore::backend_of(Home home) const {
  switch (home) {
    case Home::kDevice:
      return backends_.device.get();
    case Home::kPeers:
      return backends_.peers.get();
    case Home::kDisk:
      return backends_.disk.get();
    case Home::kDiskCopy:
      return backends_.disk ? backends_.host.get() : nullptr;
    case Home::kHost:
    case Home::kHostCopy:
    case Home::kOffloaded:
      return backends_.host.get();
  }
  return nullptr;
}

HostBackend& LayerStore::host() const {
  STRATA_CHECK(backends_.host != nullptr, "tier.host");
  return *backends_.host;
}

void LayerStore::insert(int layer, const LayerLayout& layout, const ShardPlacement& placement) {
  Entry entry{.state = LayerState(layer, layout, placement)};
  LayerState& state = entry.state;
  for (const Home home : state.homes) STRATA_CHECK(backend_of(home) != nullptr, "tier.insert");
  state.make_buffers(stream_, host_account_);
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

// The kinds under which the layer has the requested ones.
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
  Presence& presence = entry.presence(kind);
  if (presence.state() == Presence::State::kLeaving) finish(entry, kind);
  if (presence.state() == Presence::State::kAway)
    presence.arrive(backend_of(entry.state.home(kind))->fetch(entry.state, kind));
}

// Waits for the transfer in progress, if there is one. A kind on the host has arrived when its
// pending work has ended.
void LayerStore::finish(Entry& entry, StateKind kind) {
  Presence& presence = entry.presence(kind);
  const auto state = presence.state();
  if (state != Presence::State::kArriving && state != Presence::State::kLeaving) return;
  if (lives_on_host(entry.state.home(kind))) {
    presence.finish([&](Completion arrival) { entry.state.pending_on(kind) = std::move(arrival); });
    return;
  }
  const double begin = now_seconds();
  presence.finish([&](const Completion& arrival) { stream_.wait(arrival); });
  waited(entry.state, kind, begin);
}

void LayerStore::wait(const LayerState& state, StateKind kind, const Completion& event) {
  const bool on_host = lives_on_host(state.home(kind));
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

void LayerStore::bring_shard(LayerState& state, StateKind kind, std::int64_t begin,
                             const at::Tensor& to) {
  STRATA_CHECK(lives_on_host(state.home(kind)), "tier.bring_shard");
  const double began = now_seconds();
  stream_.wait(host().bring_shard(state, kind, begin, to));
  waited(state, kind, began);
}

void LayerStore::offload_gradients(LayerState& state, std::int64_t begin, const at::Tensor& from) {
  STRATA_CHECK(lives_on_host(state.home(StateKind::kGradientShard)), "tier.offload_gradients");
  const double began = now_seconds();
  host().offload_gradients(state, begin, from);  // may wait for the previous offload
  waited(state, StateKind::kGradientShard, began);
}

void LayerStore::begin_gradients(LayerState& state) {
  if (state.home(StateKind::kGradientShard) == Home::kDisk) backends_.disk->forget_gradients(state);
}

void LayerStore::end_offload() {
  if (backends_.host) backends_.host->end_offload();
}

void LayerStore::leave(Entry& entry, StateKind kind) {
  Presence& presence = entry.presence(kind);
  STRATA_CHECK_EQ(presence.pins(), 0, "tier.release");
  // Peers read this rank's part of a gather that has started.
  if (presence.state() == Presence::State::kArriving) finish(entry, kind);
  if (presence.state() != Presence::State::kHere) return;
  const double begin = now_seconds();
  // The backend may wait for the previous offload.
  presence.leave(backend_of(entry.state.home(kind))->evict(entry.state, kind));
  waited(entry.state, kind, begin);
}

void LayerStore::prefetch(int layer, StateKinds kinds) {
  Entry& entry = this->entry(layer);
  kinds = kinds_of(entry, kinds);
  for (const StateKind kind : kKinds) {
    if (!kinds.contains(kind)) continue;
    const bool away = entry.presence(kind).state() == Presence::State::kAway;
    if (entry.state.home(kind) != Home::kPeers || !away) {
      start(entry, kind);
      continue;
    }
    // Peers copy this rank's shard while it gathers theirs.
    const Pin shard = acquire_to_copy(layer, StateKind::kWeightShard);
    const bool on_disk = entry.state.home(StateKind::kWeightShard) == Home::kDisk;
    const AccountScope account(on_disk ? host_account_ : current_memory_account(),
                               DeviceKind::kCpu);
    start(entry, kind);
  }
}

Pin LayerStore::acquire(int layer, StateKinds kinds) {
  Pin pin = acquire_unwaited(layer, kinds);
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
  return shards_travel(entry(layer).state) ? acquire_unwaited(layer, kinds) : acquire(layer, kinds);
}

bool LayerStore::shards_travel(const LayerState& state) const {
  return stream_.queue() && state.placement.tiers.updates_on_host();
}

Pin LayerStore::acquire_unwaited(int layer, StateKinds kinds) {
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  Entry& entry = this->entry(layer);
  kinds = kinds_of(entry, kinds);
  prefetch(layer, kinds);
  Pin pin(*this, entry.state, {});
  for (const StateKind kind : kKinds) {
    if (!kinds.contains(kind)) continue;
    finish(entry, kind);
    entry.presence(kind).pin();
    pin.kinds_ = pin.kinds_ | kind;
  }
  if (kinds.contains(StateKind::kWeights))
    for (const int owner : entry.owners) pin.owners_.push_back(acquire(owner, StateKind::kWeights));
  return pin;
}

std::vector<Completion> LayerStore::pending(const Pin& pin) {
  LayerState& state = entry(pin.layer()).state;
  std::vector<Completion> pending;
  for (const StateKind kind : kKinds) {
    if (!pin.kinds_.contains(kind)) continue;
    pending.push_back(state.pending_on(kind));
    if (kind == StateKind::kOptimizer) pending.push_back(state.busy);
  }
  return pending;
}

void LayerStore::written(int layer, StateKinds kinds, const Completion& event) {
  Entry& entry = this->entry(layer);
  for (const StateKind kind : kKinds) {
    if (!kinds.contains(kind)) continue;
    Completion done = event;
    if (entry.state.home(kind) == Home::kDisk) {
      STRATA_CHECK(entry.presence(kind).state() == Presence::State::kAway, "tier.written");
      done = backends_.disk->store(entry.state, kind, event);
    }
    entry.state.pending_on(kind) = std::move(done);
  }
  if (kinds.contains(StateKind::kWeightShard)) outdate_weights(layer);
}

void LayerStore::read_until(int layer, StateKind kind, const Completion& event) {
  LayerState& state = entry(layer).state;
  if (state.home(kind) == Home::kDisk) backends_.disk->read_until(state, kind, event);
  state.pending_on(kind) = event;
}

void LayerStore::outdate_weights(int layer) {
  Entry& entry = this->entry(layer);
  if (!is_copy(entry.state.home(StateKind::kWeights))) return;
  Presence& weights = entry.presence(StateKind::kWeights);
  STRATA_CHECK_EQ(weights.pins(), 0, "tier.written");
  if (!entry.state.placement.whole_weights) leave(entry, StateKind::kWeights);
  finish(entry, StateKind::kWeights);
  weights.outdate();
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
    entry.presence(kind).unpin();
    if (entry.presence(kind).pins() > 0) continue;
    const Home home = entry.state.home(kind);
    const bool stays = residency_ == Residency::kUntilReleased && home != Home::kDisk;
    try {
      // Recorded segments have no such layers (schedule/segments.cpp): the event is made at each
      // use.
      if (is_copy(home)) entry.state.used = stream_.record();
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
