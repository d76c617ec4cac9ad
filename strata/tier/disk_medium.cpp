// Every task depends on earlier ones alone, and each lane keeps their order: reads wait for updates that
// wait for reads, and yet something can always go on.
//
// A slab has a layer's weights in front, where they are updated here, and the states behind them, each
// part in whole disk blocks, as its chunk has it.
#include "strata/tier/disk_medium.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/device/account.h"

namespace strata {
namespace {

std::vector<LayerOnDisk> values(const std::map<int, LayerOnDisk>& layers) {
  std::vector<LayerOnDisk> all;
  for (const auto& [number, layer] : layers) all.push_back(layer);
  return all;
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// Charges `account` until the result goes.
std::shared_ptr<void> charged_for(std::int64_t bytes, MemoryAccount* account) {
  if (bytes == 0 || !account) return nullptr;
  account->charge(bytes);
  return {account, [bytes](MemoryAccount* charged) { charged->credit(bytes); }};
}

// The buffers that a part of a slab is divided among; 16-bit ones last, for alignment's sake.
std::vector<FlatBuffer*> buffers_of(LayerState& state, StateKind kind) {
  if (kind == StateKind::kWeightShard) return {&state.weight_shard};
  std::vector<FlatBuffer*> buffers;
  for (FlatBuffer& slot : state.slots) buffers.push_back(&slot);
  if (state.master.tensor().defined()) buffers.push_back(&state.master);
  return buffers;
}

}  // namespace

DiskMedium::DiskMedium(std::unique_ptr<ChunkFile> file, const std::map<int, LayerOnDisk>& layers,
                       MemoryAccount* host, std::function<void()> agree, LaneTrace* trace,
                       std::unique_ptr<Medium> below, Device device)
    : file_(std::move(file)), agree_(std::move(agree)), trace_(trace), below_(std::move(below)) {
  const std::vector<LayerOnDisk> all = values(layers);
  const ChunkTable table = chunk_table(all);
  auto chunks = table.layers.begin();
  for (const auto& [number, layer] : layers) {
    Place& place = places_[number];
    place.chunks = *chunks++;
    if (place.chunks.weights >= 0) {
      if (!layer.weights_on_host) place.weight_bytes = file_->chunk_bytes(place.chunks.weights);
      place.stored[0] = file_->has(place.chunks.weights);
    }
    if (place.chunks.states >= 0) place.stored[1] = file_->has(place.chunks.states);
  }
  const DiskStaging staging = disk_staging(all);
  copies_ = charged_for(staging.copy_bytes, host);
  updates_ = SlabRing(staging.update_slabs, staging.update_slab_bytes, host, device);
  fetches_ = SlabRing(staging.fetch_slabs, staging.fetch_slab_bytes, host, device);
}

DiskMedium::~DiskMedium() = default;

at::Tensor DiskMedium::part_of(const Slab& slab, const LayerState& state, StateKind kind) {
  const Place& place = this->place(state);
  if (kind == StateKind::kWeightShard) return slab.bytes.narrow(0, 0, place.weight_bytes);
  return slab.bytes.narrow(0, place.weight_bytes, file_->chunk_bytes(place.chunks.states));
}

// What was never written is zero, as a buffer in memory is.
Completion DiskMedium::read(Executor& lane, Slab& slab, LayerState& state, StateKind kind) {
  const Place& place = this->place(state);
  const bool weights = kind == StateKind::kWeightShard;
  const int chunk = weights ? place.chunks.weights : place.chunks.states;
  std::vector<Completion> after = slab.busy;
  after.push_back(state.pending_on(kind));
  Completion arrived = lane.submit(
      [this, chunk, layer = state.layer, stored = place.stored[weights ? 0 : 1],
       into = part_of(slab, state, kind)] {
        if (!stored) {
          std::memset(into.mutable_data_ptr(), 0, into.nbytes());
          return;
        }
        const double begin = now_seconds();
        file_->read(chunk, bytes_of(into)).wait();
        moved(LaneKind::kDiskRead, layer, begin);
      },
      std::move(after));
  slab.busy = {arrived};
  return arrived;
}

Completion DiskMedium::write(LayerState& state, StateKind kind, at::Tensor bytes,
                             std::vector<Completion> after) {
  Place& place = this->place(state);
  const bool weights = kind == StateKind::kWeightShard;
  place.stored[weights ? 0 : 1] = true;
  return writes_.submit(
      [this, chunk = weights ? place.chunks.weights : place.chunks.states, layer = state.layer,
       bytes = std::move(bytes)] {
        const double begin = now_seconds();
        file_->write(chunk, bytes_of(bytes)).wait();
        moved(LaneKind::kDiskWrite, layer, begin);
      },
      std::move(after));
}

std::unique_ptr<Transfer> DiskMedium::fetch(LayerState& state, StateKind kind) {
  if (!state.placement.on_disk(kind)) return below_->fetch(state, kind);
  Slab* slab = updates_.of(state.layer);
  // A write may still read the bytes that the last lease has left there: each has its own.
  if (!slab || slab->leases == 0) slab = &updates_.take(state.layer);
  ++slab->leases;
  const Completion arrived = read(reads_, *slab, state, kind);
  if (kind == StateKind::kWeightShard) slab->complete = {arrived};
  state.pending_on(kind) = arrived;
  auto* begin = static_cast<std::byte*>(part_of(*slab, state, kind).mutable_data_ptr());
  for (FlatBuffer* buffer : buffers_of(state, kind)) {
    // The slab's own: it outlives them.
    buffer->install(at::from_blob(begin, buffer->tensor().sizes(), buffer->tensor().options()));
    begin += buffer->bytes().nbytes();
  }
  return nullptr;
}

std::unique_ptr<Transfer> DiskMedium::evict(LayerState& state, StateKind kind) {
  if (!state.placement.on_disk(kind)) return below_->evict(state, kind);
  for (FlatBuffer* buffer : buffers_of(state, kind)) buffer->remove();
  Slab* const slab = updates_.of(state.layer);
  STRATA_CHECK(slab != nullptr && slab->leases > 0, "tier.disk_medium");
  --slab->leases;
  return nullptr;
}

Completion DiskMedium::written(LayerState& state, StateKind kind, const Completion& event) {
  if (!state.placement.on_disk(kind)) return below_->written(state, kind, event);
  Slab* const slab = updates_.of(state.layer);
  STRATA_CHECK(slab != nullptr, "tier.disk_medium");  // nothing was leased in between
  if (kind == StateKind::kWeightShard) slab->complete = {event};
  Completion done = write(state, kind, part_of(*slab, state, kind), {event});
  slab->busy.push_back(done);
  return done;
}

Completion DiskMedium::pass_weights(LayerState& state, const CopyWeights& copy) {
  const bool stay = !state.placement.tiers.fetches_weights();
  Slab* slab = updates_.of(state.layer);
  // Weights that stay on the device come there once a step, right behind their update.
  if (!stay || !slab || slab->complete.empty()) {
    slab = &(stay ? updates_ : fetches_).take(state.layer);
    slab->complete = {read(stay ? reads_ : fetch_reads_, *slab, state, StateKind::kWeightShard)};
  }
  const auto bytes = static_cast<std::int64_t>(state.weight_shard.tensor().nbytes());
  Completion copied =
      copy(slab->bytes.narrow(0, 0, bytes).view(state.weight_shard.tensor().scalar_type()),
           slab->complete);
  slab->busy.push_back(copied);
  return copied;
}

void DiskMedium::read_until(LayerState& state, const Completion& event) {
  Slab* const slab = updates_.of(state.layer);
  STRATA_CHECK(slab != nullptr && slab->leases > 0, "tier.disk_medium");
  slab->busy.push_back(event);
}

bool DiskMedium::has_weights_on_host(const LayerState& state) const {
  const auto found = places_.find(state.layer);
  return found != places_.end() && found->second.weight_bytes == 0;
}

void DiskMedium::keep(LayerState& state) {
  if (!has_weights_on_host(state)) return;
  state.busy = write(state, StateKind::kWeightShard, state.weight_shard.bytes(),
                     {state.pending_on(StateKind::kWeightShard)});
}

void DiskMedium::restore(LayerState& state) {
  if (!has_weights_on_host(state)) return;
  file_->read(place(state).chunks.weights, bytes_of(state.weight_shard.bytes())).wait();
}

void DiskMedium::moved(LaneKind lane, int layer, double begin_seconds) {
  const double now = now_seconds();
  (lane == LaneKind::kDiskRead ? read_seconds_ : write_seconds_) += now - begin_seconds;
  if (trace_) trace_->add({lane, layer, begin_seconds, now});
}

Completion DiskMedium::commit(std::int64_t step, std::string user_text) {
  return writes_.submit([this, step, user_text = std::move(user_text)] {
    const double begin = now_seconds();
    file_->commit(step, user_text);
    write_seconds_ += now_seconds() - begin;
    agree_();
  });
}

DiskMedium::Use DiskMedium::use() const {
  return {.bytes_read = static_cast<std::int64_t>(file_->bytes_read()),
          .bytes_written = static_cast<std::int64_t>(file_->bytes_written()),
          .read_seconds = read_seconds_,
          .write_seconds = write_seconds_};
}

}  // namespace strata
