#include "strata/tier/host_backend.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "strata/device/account.h"
#include "strata/device/pinned.h"
#include "strata/tier/disk_residency.h"

namespace strata {

HostBackend::HostBackend(LinkOptions link, DiskResidency* disk, TrackTrace* trace,
                         const CopyStreams& streams)
    : compute_(streams.compute),
      slots_(streams.compute),
      link_(link, trace, streams.to_device, streams.to_host),
      disk_(disk) {}

// Kinds on the host are used there, and gradients are made on the device.
std::unique_ptr<Transfer> HostBackend::fetch(LayerState& state, StateKind kind) {
  const Home home = state.home(kind);
  if (home != Home::kHostCopy && home != Home::kDiskCopy) return nullptr;
  return fetch_weights(state, home == Home::kDiskCopy);
}

std::unique_ptr<Transfer> HostBackend::fetch_weights(LayerState& state, bool from_disk) {
  Completion free = state.used;
  if (!state.weights.present()) {
    DeviceSlots::Slot slot =
        slots_.take(state.weights.tensor().numel(), state.weights.tensor().scalar_type());
    state.weights.install(std::move(slot.bytes));
    free = std::move(slot.free);
  }
  const at::Tensor to = state.weights.bytes();
  if (!from_disk) {
    return std::make_unique<Arrival>(
        link_.to_device(to, state.weight_shard.bytes(),
                        {state.pending_on(StateKind::kWeightShard), free}, state.layer));
  }
  StagingBuffer& buffer = disk_->stage_weights(state);
  std::vector<Completion> after = buffer.complete;
  after.push_back(free);
  const at::Tensor from =
      buffer.bytes.narrow(0, 0, static_cast<std::int64_t>(to.nbytes())).view(to.scalar_type());
  return std::make_unique<Arrival>(
      buffer.busy.emplace_back(link_.to_device(to, from, std::move(after), state.layer)));
}

std::unique_ptr<Transfer> HostBackend::evict(LayerState& state, StateKind kind) {
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

Completion HostBackend::bring_shard(LayerState& state, StateKind kind, std::int64_t begin,
                                    const at::Tensor& to) {
  if (to.numel() == 0) return {};
  const bool weights = kind == StateKind::kWeightShard;
  const at::Tensor from = (weights ? state.weight_shard : state.gradient_shard).bytes();
  // The compute stream may still use the memory for its previous contents.
  Completion arrived = link_.to_device(to, from.narrow(0, begin, to.numel()),
                                       {state.pending_on(kind), compute_.record()}, state.layer);
  if (state.home(kind) == Home::kDisk) disk_->read_until(state, kind, arrived);
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
  // The link keeps only host memory alive.
  if (compute_.queue()) leaving_ = from;
  state.pending_on(StateKind::kGradientShard) = offloaded_;
  return offloaded_;
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

// The copy to the buffer waits until the update of the previous borrower has read its gradient.
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
