#include "strata/tier/host_backend.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "strata/device/account.h"
#include "strata/device/pinned.h"
#include "strata/tier/disk_residency.h"

namespace strata {
namespace {

// The bytes are on the device when `arrival` has happened; their place is taken at once.
class Arrival final : public Transfer {
 public:
  explicit Arrival(Completion arrival) : arrival_(std::move(arrival)) {}
  Completion finish() override { return std::move(arrival_); }

 private:
  Completion arrival_;
};

}  // namespace

HostBackend::HostBackend(LinkOptions link, std::unique_ptr<StateBackend> below, TrackTrace* trace,
                         const CopyStreams& streams)
    : compute_(streams.compute),
      slots_(streams.compute),
      link_(link, trace, streams.to_device, streams.to_host),
      below_(std::move(below)) {}

HostBackend::HostBackend(LinkOptions link, std::unique_ptr<DiskResidency> disk, TrackTrace* trace,
                         const CopyStreams& streams)
    : HostBackend(link, resident_backend(), trace, streams) {
  disk_ = std::move(disk);
}

HostBackend::~HostBackend() = default;

std::unique_ptr<Transfer> HostBackend::fetch(LayerState& state, StateKind kind) {
  const bool weights = kind == StateKind::kWeights && !state.placement.gathered_weights;
  if (!state.placement.tiers.updates_on_host()) return below_->fetch(state, kind);
  if (state.placement.on_disk(kind)) {
    state.pending_on(kind) = disk_->stage(state, kind);
    return nullptr;
  }
  // Other kinds are used where they live; a gradient is made on the device.
  if (!weights || state.own().size() == 0) return nullptr;
  // Replicas that hold a part each exchange them (the machine does); there is nothing to fetch here.
  if (state.placement.shard.size() < state.own().size()) return nullptr;
  Completion free = state.used;
  if (!state.weights.present()) {
    DeviceSlots::Slot slot =
        slots_.take(state.weights.tensor().numel(), state.weights.tensor().scalar_type());
    state.weights.install(std::move(slot.bytes));
    free = std::move(slot.free);
  }
  if (state.placement.on_disk(StateKind::kWeightShard)) {
    StagingBuffer& buffer = disk_->stage_weights(state);
    std::vector<Completion> after = buffer.complete;
    after.push_back(free);
    const at::Tensor to = state.weights.bytes();
    const at::Tensor from =
        buffer.bytes.narrow(0, 0, static_cast<std::int64_t>(to.nbytes())).view(to.scalar_type());
    return std::make_unique<Arrival>(
        buffer.busy.emplace_back(link_.to_device(to, from, std::move(after), state.layer)));
  }
  return std::make_unique<Arrival>(
      link_.to_device(state.weights.bytes(), state.weight_shard.bytes(),
                      {state.pending_on(StateKind::kWeightShard), free}, state.layer));
}

std::unique_ptr<Transfer> HostBackend::evict(LayerState& state, StateKind kind) {
  if (!state.placement.tiers.updates_on_host()) return below_->evict(state, kind);
  if (state.placement.on_disk(kind)) {
    disk_->unstage(state, kind);
    return nullptr;
  }
  if (kind == StateKind::kWeights) {
    if (!state.placement.whole_weights && state.weights.present())
      slots_.give_back(state.weights.remove(), state.used);
    return nullptr;
  }
  if (kind != StateKind::kGradients || !state.gradients.present()) return nullptr;
  if (state.placement.borrows_gradients) assign_gradient_buffer(state);
  const FlatRange shard = state.placement.shard;
  const at::Tensor bytes =
      state.placement.whole_gradients ? state.gradients.bytes() : state.gradients.remove();
  return std::make_unique<Arrival>(
      offload_gradients(state, 0, bytes.narrow(0, shard.begin, shard.size())));
}

Completion HostBackend::written(LayerState& state, StateKind kind, const Completion& event) {
  if (state.placement.on_disk(kind)) return disk_->store(state, kind, event);
  return below_->written(state, kind, event);
}

Completion HostBackend::bring_shard(LayerState& state, StateKind kind, std::int64_t begin,
                                    const at::Tensor& to) {
  if (to.numel() == 0) return {};
  const bool weights = kind == StateKind::kWeightShard;
  const at::Tensor from = (weights ? state.weight_shard : state.gradient_shard).bytes();
  // Whoever had the memory before may still use it.
  Completion arrived = link_.to_device(to, from.narrow(0, begin, to.numel()),
                                       {state.pending_on(kind), compute_.record()}, state.layer);
  if (state.placement.on_disk(kind)) disk_->read_until(state, kind, arrived);
  return arrived;
}

Completion HostBackend::offload_gradients(LayerState& state, std::int64_t begin,
                                          const at::Tensor& from) {
  if (from.numel() == 0) return {};
  compute_.wait(offloaded_);  // a device does; on a CPU the rank
  leaving_ = at::Tensor();
  offloaded_ =
      link_.to_host(state.gradient_shard.bytes().narrow(0, begin, from.numel()), from,
                    {state.pending_on(StateKind::kGradientShard), compute_.record()}, state.layer);
  // The link holds host memory alone.
  if (compute_.queue()) leaving_ = from;
  state.pending_on(StateKind::kGradientShard) = offloaded_;
  return offloaded_;
}

void HostBackend::begin_gradients(LayerState& state) {
  if (state.placement.on_disk(StateKind::kGradientShard)) disk_->forget_gradients(state);
}

Completion HostBackend::read_until(LayerState& state, StateKind kind, const Completion& event) {
  if (state.placement.on_disk(kind)) disk_->read_until(state, kind, event);
  return event;
}

void HostBackend::end_offload() {
  if (!leaving_.defined()) return;
  compute_.wait(offloaded_);
  leaving_ = at::Tensor();
}

void HostBackend::make_gradient_buffers(int buffers, std::int64_t numel) {
  for (int i = 0; i < buffers; ++i)
    gradient_buffers_.push_back(
        {compute_.queue()
             ? pinned_bytes(numel * 4, compute_.device(), current_memory_account()).view(at::kFloat)
             : at::empty({numel}, host_options(at::kFloat))});
}

// The link waits, not the rank, until the update of the layer before has read its gradient.
void HostBackend::assign_gradient_buffer(LayerState& state) {
  GradientBuffer& buffer = gradient_buffers_[next_buffer_++ % gradient_buffers_.size()];
  if (LayerState* before = buffer.borrower) {
    state.pending_on(StateKind::kGradientShard) = before->pending_on(StateKind::kGradientShard);
    before->gradient_shard.remove();
  }
  buffer.borrower = &state;
  state.gradient_shard.install(buffer.bytes.narrow(0, 0, state.gradient_shard.tensor().numel()));
}

}  // namespace strata
