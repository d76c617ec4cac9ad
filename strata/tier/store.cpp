// Invariants: a kind with leases is here; a transfer exists exactly while a kind is coming or
// leaving. Where weights stay whole there is no shard beside them: kWeightShard then means kWeights.
#include "strata/tier/store.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/device/account.h"
#include "strata/device/pinned.h"

namespace strata {
namespace {

constexpr StateKind kKinds[] = {StateKind::kWeightShard, StateKind::kWeights, StateKind::kGradients,
                                StateKind::kGradientShard, StateKind::kOptimizer};

FlatBuffer zeroed(std::int64_t numel, at::ScalarType dtype, Device device) {
  FlatBuffer buffer(numel, dtype, device);
  buffer.install(at::zeros({numel}, buffer.tensor().options()));
  return buffer;
}

// What only the host has, though the device brings it there or fetches copies of it.
bool lives_on_host(const LayerState& state, StateKind kind) {
  return state.placement.tiers.updates_on_host() && kind != StateKind::kWeights &&
         kind != StateKind::kGradients;
}

// What a device copies from and to beside other work.
FlatBuffer pinned(std::int64_t numel, at::ScalarType dtype, Device device, MemoryAccount* account) {
  FlatBuffer buffer(numel, dtype, Device{});
  const auto bytes = static_cast<std::int64_t>(buffer.tensor().nbytes());
  buffer.install(pinned_bytes(bytes, device, account).view(dtype));
  return buffer;
}

void make_buffers(LayerState& state, const Stream& compute, MemoryAccount* host) {
  const Device device = compute.device();
  const ShardPlacement& placement = state.placement;
  const LayerLayout& layout = *state.layout;
  const bool on_host = placement.tiers.updates_on_host();
  const auto shard = [&](StateKind kind, at::ScalarType dtype) {
    if (placement.on_disk(kind)) return FlatBuffer(placement.shard.size(), dtype, Device{});
    const bool travels = kind != StateKind::kOptimizer && placement.shard.size() > 0;
    if (on_host && travels && compute.queue())
      return pinned(placement.shard.size(), dtype, device, host);
    const AccountScope account(on_host ? host : current_memory_account(), DeviceKind::kCpu);
    return zeroed(placement.shard.size(), dtype, on_host ? Device{} : device);
  };
  state.weights = placement.whole_weights ? zeroed(layout.own_numel, placement.dtype, device)
                                          : FlatBuffer(layout.own_numel, placement.dtype, device);
  if (!placement.updates_in_weights())
    state.weight_shard = shard(StateKind::kWeightShard, placement.dtype);
  if (!placement.trains) return;
  state.gradients = placement.whole_gradients ? zeroed(layout.total_numel, at::kFloat, device)
                                              : FlatBuffer(layout.total_numel, at::kFloat, device);
  if (placement.borrows_gradients)
    state.gradient_shard = FlatBuffer(placement.shard.size(), at::kFloat, Device{});
  else if (!placement.updates_from_gradients())
    state.gradient_shard = shard(StateKind::kGradientShard, at::kFloat);
  if (placement.dtype != at::kFloat)
    state.master =
        shard(StateKind::kOptimizer, placement.splits_weights() ? at::kShort : at::kFloat);
  for (int slot = 0; slot < placement.optimizer_slots; ++slot)
    state.slots.push_back(shard(StateKind::kOptimizer, at::kFloat));
}

[[noreturn]] void refuse_copy(const LayerState& state) {
  throw InternalError({.operation = "tier.medium",
                       .where = "layer " + std::to_string(state.layer),
                       .what = "a copy of a shard is asked for that lives nowhere else",
                       .expected = "a shard on the host",
                       .got = "",
                       .fix = ""});
}

// The part of a layer's flat buffer that is a weight's, in its shape.
at::Tensor view_of(const FlatBuffer& flat, const WeightPlacement& place) {
  return flat.tensor().narrow(0, place.offset, place.numel).view(place.shape);
}

}  // namespace

const char* name_of(StateKind kind) {
  constexpr const char* kNames[kNumStateKinds] = {"weights", "weight shard", "gradients",
                                                  "gradient shard", "optimizer states"};
  return kNames[static_cast<int>(kind)];
}

Event Medium::bring_shard(LayerState& state, StateKind, std::int64_t, const at::Tensor&) {
  refuse_copy(state);
}

Event Medium::offload_gradients(LayerState& state, std::int64_t, const at::Tensor&) {
  refuse_copy(state);
}

ShardPlacement shard_placement(const StepPlan& plan, int layer, const LayerLayout& layout,
                               int shard_rank) {
  const LayerShards shards = plan.shards()[layer];
  const TierLayout& tiers = plan.decisions().tiers;
  const bool at_once = is_updated_at_once(tiers, shards, layer, tied_layers(plan.dataflow()));
  return {.shard = cut({0, layout.own_numel}, plan.shards().shards)[shard_rank],
          .whole_weights = !shards.weights && !tiers[layer].fetches_weights(),
          .whole_gradients = !shards.gradients && !tiers[layer].offloads_gradients(),
          .gathered_weights = shards.weights,
          .borrows_gradients = at_once && tiers.gradient_buffers > 0,
          .tiers = tiers[layer]};
}

std::vector<FlatBuffer*> LayerState::kept(StateKind kind) {
  std::vector<FlatBuffer*> buffers;
  const auto add = [&](FlatBuffer& buffer) {
    if (buffer.tensor().defined()) buffers.push_back(&buffer);
  };
  const bool on_host = placement.tiers.updates_on_host();
  if (on_host && kind != StateKind::kWeights && kind != StateKind::kGradients) return buffers;
  switch (kind) {
    case StateKind::kWeights:
      if (placement.whole_weights) add(weights);
      break;
    case StateKind::kWeightShard:
      add(weight_shard);
      break;
    case StateKind::kGradients:
      if (placement.whole_gradients || !on_host)
        add(placement.whole_gradients ? gradients : gradient_shard);
      break;
    case StateKind::kGradientShard:
      break;  // the same as the gradients
    case StateKind::kOptimizer:
      add(master);
      for (FlatBuffer& slot : slots) add(slot);
      break;
  }
  return buffers;
}

Lease::Lease(Lease&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      state_(other.state_),
      kinds_(other.kinds_),
      owners_(std::move(other.owners_)) {}

Lease::~Lease() {
  if (store_) store_->end_lease(state_->layer, kinds_);
}

void Lease::require(StateKind kind) const {
  if (kinds_.contains(kind)) return;
  throw InternalError({.operation = "tier.lease",
                       .where = "layer " + std::to_string(state_->layer),
                       .what = "the lease is not for this kind of state",
                       .expected = std::string("a lease for ") + name_of(kind),
                       .got = "",
                       .fix = ""});
}

std::span<const at::Tensor> Lease::weights() const {
  require(StateKind::kWeights);
  return state_->leaves;
}

at::Tensor Lease::flat_weights() const {
  require(StateKind::kWeights);
  return state_->weights.tensor();
}

at::Tensor Lease::weight_shard() const {
  const FlatRange shard = state_->placement.shard;
  const bool whole = state_->placement.updates_in_weights();
  require(whole ? StateKind::kWeights : StateKind::kWeightShard);
  // Of the bytes themselves, not of the buffer: peers may read them after they have left it.
  return whole ? state_->weights.bytes().narrow(0, shard.begin, shard.size())
               : state_->weight_shard.bytes();
}

void Lease::open_gradients() const {
  require(StateKind::kGradients);
  FlatBuffer& gradients = state_->gradients;
  if (!gradients.present())
    gradients.install(at::zeros(gradients.tensor().sizes(), gradients.tensor().options()));
}

at::Tensor Lease::take_gradients() const {
  require(StateKind::kGradients);
  return state_->gradients.remove();
}

at::Tensor Lease::flat_gradients() const {
  require(StateKind::kGradients);
  return state_->gradients.bytes();
}

at::Tensor Lease::weight_gradient(std::size_t weight) const {
  require(StateKind::kGradients);
  STRATA_CHECK(state_->gradients.present(), "tier.weight_gradient");
  return view_of(state_->gradients, state_->layout->placements[weight]);
}

at::Tensor Lease::gradient_shard() const {
  require(state_->placement.tiers.updates_on_host() ? StateKind::kGradientShard
                                                    : StateKind::kGradients);
  const FlatRange shard = state_->placement.shard;
  return state_->placement.updates_from_gradients()
             ? state_->gradients.bytes().narrow(0, shard.begin, shard.size())
             : state_->gradient_shard.bytes();
}

bool Lease::shards_travel() const { return store_->shards_travel(*state_); }

void Lease::bring_shard(StateKind kind, std::int64_t begin, const at::Tensor& to) const {
  require(kind);
  store_->bring_shard(*state_, kind, begin, to);
}

void Lease::offload_gradients(std::int64_t begin, const at::Tensor& from) const {
  require(StateKind::kGradientShard);
  store_->offload_gradients(*state_, begin, from);
}

void Lease::zero_gradients() const {
  require(StateKind::kGradients);
  if (state_->gradients.present()) state_->gradients.bytes().zero_();
}

MasterWeights Lease::master() const {
  const ShardPlacement& placement = state_->placement;
  if (placement.dtype == at::kFloat || !placement.trains) return {weight_shard()};
  require(StateKind::kOptimizer);
  if (placement.splits_weights()) return {weight_shard(), state_->master.bytes()};
  return {state_->master.bytes()};
}

at::Tensor Lease::rounded() const {
  return state_->placement.rounds_weights() ? weight_shard() : at::Tensor();
}

std::vector<at::Tensor> Lease::slots() const {
  require(StateKind::kOptimizer);
  std::vector<at::Tensor> slots;
  for (const FlatBuffer& slot : state_->slots) slots.push_back(slot.bytes());
  return slots;
}

LayerStore::LayerStore(std::unique_ptr<Medium> medium, Residency residency, Stream compute,
                       MemoryAccount* host)
    : medium_(std::move(medium)), residency_(residency), host_(host), stream_(std::move(compute)) {}

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
  make_buffers(state, stream_, host_);
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    const std::string& tie = layout.specs[i].tie;
    at::Tensor bytes;
    if (!place.borrowed) {
      bytes = view_of(state.weights, place);
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
    if (placement.trains) leaf.mutable_grad() = view_of(state.gradients, place);
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
StateKinds LayerStore::kinds_of(const Entry& entry, StateKinds asked) const {
  const ShardPlacement& placement = entry.state.placement;
  const StateKinds training =
      StateKind::kGradients | StateKind::kGradientShard | StateKind::kOptimizer;
  STRATA_CHECK(placement.trains || asked - training == asked, "tier.kinds");
  if (placement.tiers.updates_on_host()) return asked;
  if (placement.whole_weights && asked.contains(StateKind::kWeightShard))
    asked = (asked - StateKind::kWeightShard) | StateKind::kWeights;
  if (asked.contains(StateKind::kGradientShard))
    asked = (asked - StateKind::kGradientShard) | StateKind::kGradients;
  return asked;
}

void LayerStore::start(Entry& entry, StateKind kind) {
  Status& status = entry.status[static_cast<int>(kind)];
  if (status.where == Where::kLeaving) finish(entry, kind);
  if (status.where != Where::kAway) return;
  status.transfer = medium_->fetch(entry.state, kind);
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

void LayerStore::wait(const LayerState& state, StateKind kind, const Event& event) {
  const bool on_host = lives_on_host(state, kind);
  const auto wait = [&] { on_host ? event.synchronize() : stream_.wait(event); };
  if (event.query()) return wait();  // it may have failed
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
  stream_.wait(medium_->bring_shard(state, kind, begin, to));
  waited(state, kind, began);
}

void LayerStore::offload_gradients(LayerState& state, std::int64_t begin, const at::Tensor& from) {
  const double began = now_seconds();
  medium_->offload_gradients(state, begin, from);  // may wait for the one before
  waited(state, StateKind::kGradientShard, began);
}

void LayerStore::leave(Entry& entry, StateKind kind) {
  Status& status = entry.status[static_cast<int>(kind)];
  STRATA_CHECK_EQ(status.leases, 0, "tier.release");
  // Peers count on this rank's part in what has started.
  if (status.where == Where::kComing) finish(entry, kind);
  if (status.where != Where::kHere) return;
  const double begin = now_seconds();
  status.transfer = medium_->evict(entry.state, kind);  // may wait for the one before
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
      const Lease shard = acquire_to_copy(layer, StateKind::kWeightShard);
      const bool on_disk = entry.state.placement.on_disk(StateKind::kWeightShard);
      const AccountScope account(on_disk ? host_ : current_memory_account(), DeviceKind::kCpu);
      start(entry, kind);
    } else {
      start(entry, kind);
    }
  }
}

Lease LayerStore::acquire(int layer, StateKinds kinds) {
  std::vector<Event> pending;
  Lease lease = acquire(layer, kinds, pending);
  LayerState& state = entry(layer).state;
  for (const StateKind kind : kKinds) {
    if (!lease.kinds_.contains(kind)) continue;
    wait(state, kind, state.pending_on(kind));
    state.pending_on(kind) = {};
    if (kind == StateKind::kOptimizer) wait(state, kind, state.busy);
  }
  return lease;
}

Lease LayerStore::acquire_to_copy(int layer, StateKinds kinds) {
  if (!shards_travel(entry(layer).state)) return acquire(layer, kinds);
  std::vector<Event> pending;
  return acquire(layer, kinds, pending);
}

bool LayerStore::shards_travel(const LayerState& state) const {
  return stream_.queue() && state.placement.tiers.updates_on_host();
}

Lease LayerStore::acquire(int layer, StateKinds kinds, std::vector<Event>& pending) {
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  Entry& entry = this->entry(layer);
  kinds = kinds_of(entry, kinds);
  prefetch(layer, kinds);
  Lease lease(*this, entry.state, {});
  for (const StateKind kind : kKinds) {
    if (!kinds.contains(kind)) continue;
    finish(entry, kind);
    pending.push_back(entry.state.pending_on(kind));
    if (kind == StateKind::kOptimizer) pending.push_back(entry.state.busy);
    ++entry.status[static_cast<int>(kind)].leases;
    lease.kinds_ = lease.kinds_ | kind;
  }
  if (kinds.contains(StateKind::kWeights))
    for (const int owner : entry.owners)
      lease.owners_.push_back(acquire(owner, StateKind::kWeights));
  return lease;
}

void LayerStore::written(int layer, StateKinds kinds, const Event& event) {
  Entry& entry = this->entry(layer);
  for (const StateKind kind : kKinds)
    if (kinds.contains(kind))
      entry.state.pending_on(kind) = medium_->written(entry.state, kind, event);
  if (kinds.contains(StateKind::kWeightShard)) outdate_weights(layer);
}

void LayerStore::outdate_weights(int layer) {
  Entry& entry = this->entry(layer);
  const ShardPlacement& placement = entry.state.placement;
  if (placement.gathered_weights) return;
  if (!placement.tiers.updates_on_host() || placement.shard.size() < entry.state.own().size())
    return;
  // What the device has of it is the past.
  Status& weights = entry.status[static_cast<int>(StateKind::kWeights)];
  STRATA_CHECK_EQ(weights.leases, 0, "tier.written");
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

void LayerStore::end_lease(int layer, StateKinds kinds) noexcept {
  Entry& entry = this->entry(layer);
  for (const StateKind kind : kKinds) {
    if (!kinds.contains(kind)) continue;
    if (--entry.status[static_cast<int>(kind)].leases > 0) continue;
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
