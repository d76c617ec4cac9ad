// A transfer depends on work that was submitted before it alone: reads wait for updates that wait for
// reads, and something can always run.
//
// A staging buffer has a layer's weights in front, where they are updated here, and the states behind them, each
// part in whole disk blocks, as its chunk has it.
#include "strata/tier/disk_residency.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
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

// The buffers that a part of a staging buffer is divided among; 16-bit ones last, for alignment's sake.
std::vector<FlatBuffer*> buffers_of(LayerState& state, StateKind kind) {
  if (kind == StateKind::kWeightShard) return {&state.weight_shard};
  if (kind == StateKind::kGradientShard) return {&state.gradient_shard};
  std::vector<FlatBuffer*> buffers;
  for (FlatBuffer& slot : state.slots) buffers.push_back(&slot);
  if (state.master.tensor().defined()) buffers.push_back(&state.master);
  return buffers;
}

}  // namespace

DiskResidency::DiskResidency(DiskFiles files, const std::map<int, LayerOnDisk>& layers,
                             MemoryAccount* host, std::function<void()> agree, TrackTrace* trace,
                             Device device)
    : files_(std::move(files)), agree_(std::move(agree)), trace_(trace) {
  const std::vector<LayerOnDisk> all = values(layers);
  const ChunkTable table = chunk_table(all);
  auto chunks = table.layers.begin();
  const auto part = [&](int chunk) {
    return Part{.chunk = chunk, .stored = chunk >= 0 && file().has(chunk)};
  };
  for (const auto& [number, layer] : layers) {
    Place& place = places_[number];
    place.weights = part(chunks->weights);
    place.states = part(chunks->states);
    place.gradients.chunk = chunks->gradients;
    if (place.weights.chunk >= 0 && !layer.weights_on_host)
      place.weight_bytes = file().chunk_bytes(place.weights.chunk);
    ++chunks;
  }
  const DiskStaging staging = disk_staging(all);
  copies_ = charged_for(staging.copy_bytes, host);
  updates_ = StagingRing(staging.update_buffers, staging.update_buffer_bytes, host, device);
  fetches_ = StagingRing(staging.fetch_buffers, staging.fetch_buffer_bytes, host, device);
  gradients_ = StagingRing(staging.gradient_buffers, staging.gradient_buffer_bytes, host, device);
}

DiskResidency::~DiskResidency() {
  for (const Completion& transfer : under_way_) transfer.settle();
}

at::Tensor DiskResidency::part_of(const StagingBuffer& buffer, const LayerState& state,
                                  StateKind kind) {
  const Place& place = this->place(state);
  if (kind == StateKind::kWeightShard) return buffer.bytes.narrow(0, 0, place.weight_bytes);
  if (kind == StateKind::kGradientShard)
    return buffer.bytes.narrow(0, 0, files_.gradients->chunk_bytes(place.gradients.chunk));
  return buffer.bytes.narrow(0, place.weight_bytes, file().chunk_bytes(place.states.chunk));
}

// Ends when all of the work has. A device's events cannot call back: an executor waits for them.
Completion DiskResidency::ended(std::vector<Completion> work) {
  for (Completion& part : work) {
    if (!dynamic_cast<const DeviceEvent*>(part.source())) continue;
    if (!device_waits_)
      device_waits_ = std::make_unique<Executor>(ExecutorOptions{.name = "device waits"});
    part = device_waits_->submit([] {}, {part});
  }
  return all_of(work);
}

Completion DiskResidency::under_way(Completion transfer) {
  std::erase_if(under_way_, [](const Completion& earlier) { return earlier.ready(); });
  return under_way_.emplace_back(std::move(transfer));
}

// What was never written is zero, as a buffer in memory is.
Completion DiskResidency::read(StagingBuffer& buffer, LayerState& state, StateKind kind) {
  const Part& part = place(state).part(kind);
  std::vector<Completion> after = buffer.busy;
  after.push_back(state.pending_on(kind));
  Completion arrived = under_way(
      ended(std::move(after))
          .and_then([this, &file = file_of(kind), chunk = part.chunk, layer = state.layer,
                     stored = part.stored, into = bytes_of(part_of(buffer, state, kind))] {
            if (stored)
              return timed(TrackKind::kDiskRead, layer, {}, file.read(chunk, into).release());
            std::memset(into.data(), 0, into.size());
            return Completion();
          }));
  buffer.busy = {arrived};
  return arrived;
}

Completion DiskResidency::write(LayerState& state, StateKind kind, at::Tensor bytes,
                                std::vector<Completion> after) {
  Part& part = place(state).part(kind);
  part.stored = true;
  const bool committed = kind != StateKind::kGradientShard;
  if (committed) after.push_back(committed_);
  Completion done = under_way(ended(std::move(after))
                                  .and_then([this, &file = file_of(kind), chunk = part.chunk,
                                             layer = state.layer, bytes = std::move(bytes)] {
                                    return timed(TrackKind::kDiskWrite, layer, bytes,
                                                 file.write(chunk, bytes_of(bytes)).release());
                                  }));
  if (committed) writes_.push_back(done);
  return done;
}

// Ends with the transfer, when its time is noted and what it used is released.
Completion DiskResidency::timed(TrackKind way, int layer, at::Tensor used,
                                const Completion& transfer) {
  const Promise ended;
  transfer.then([this, way, layer, used = std::move(used), ended,
                 begin = now_seconds()](std::exception_ptr error) mutable {
    if (!error) moved(way, layer, begin);
    used.reset();
    ended.end(std::move(error));
  });
  return ended.completion();
}

Completion DiskResidency::stage(LayerState& state, StateKind kind) {
  Part& part = place(state).part(kind);
  STRATA_CHECK(part.where == Where::kOnDisk, "tier.disk_residency");
  StagingRing& ring = ring_of(kind);
  StagingBuffer* buffer = ring.of(state.layer);
  // A write may still read the bytes that the last pin has left there: each pin has its own staging buffer.
  if (!buffer || buffer->pins == 0) buffer = &ring.take(state.layer);
  ++buffer->pins;
  part.where = Where::kStaged;
  const Completion arrived = read(*buffer, state, kind);
  if (kind == StateKind::kWeightShard) buffer->complete = {arrived};
  auto* begin = static_cast<std::byte*>(part_of(*buffer, state, kind).mutable_data_ptr());
  for (FlatBuffer* buffer : buffers_of(state, kind)) {
    // The staging buffer's own: it outlives them.
    buffer->install(at::from_blob(begin, buffer->tensor().sizes(), buffer->tensor().options()));
    begin += buffer->bytes().nbytes();
  }
  return arrived;
}

void DiskResidency::unstage(LayerState& state, StateKind kind) {
  Part& part = place(state).part(kind);
  StagingBuffer* const buffer = ring_of(kind).of(state.layer);
  STRATA_CHECK(part.where == Where::kStaged && buffer && buffer->pins > 0, "tier.disk_residency");
  for (FlatBuffer* buffer : buffers_of(state, kind)) buffer->remove();
  --buffer->pins;
  part.where = Where::kOnDisk;
}

Completion DiskResidency::store(LayerState& state, StateKind kind, const Completion& updated) {
  StagingBuffer* const buffer = ring_of(kind).of(state.layer);
  STRATA_CHECK(place(state).part(kind).where == Where::kOnDisk && buffer, "tier.disk_residency");
  if (kind == StateKind::kWeightShard) buffer->complete = {updated};
  Completion done = write(state, kind, part_of(*buffer, state, kind), {updated});
  buffer->busy.push_back(done);
  return done;
}

StagingBuffer& DiskResidency::stage_weights(LayerState& state) {
  const bool stay = !state.placement.tiers.fetches_weights();
  // Weights that stay on the device come there once a step, right after their update.
  StagingBuffer* const updated = stay ? updates_.of(state.layer) : nullptr;
  if (updated && !updated->complete.empty()) return *updated;
  StagingBuffer& buffer = (stay ? updates_ : fetches_).take(state.layer);
  buffer.complete = {read(buffer, state, StateKind::kWeightShard)};
  return buffer;
}

void DiskResidency::read_until(LayerState& state, StateKind kind, const Completion& event) {
  StagingBuffer* const buffer = ring_of(kind).of(state.layer);
  STRATA_CHECK(buffer != nullptr, "tier.disk_residency");
  buffer->busy.push_back(event);
}

bool DiskResidency::has_weights_on_host(const LayerState& state) const {
  const auto found = places_.find(state.layer);
  return found != places_.end() && found->second.weight_bytes == 0;
}

void DiskResidency::keep(LayerState& state) {
  if (!has_weights_on_host(state)) return;
  state.busy = write(state, StateKind::kWeightShard, state.weight_shard.bytes(),
                     {state.pending_on(StateKind::kWeightShard)});
}

void DiskResidency::restore(LayerState& state) {
  if (!has_weights_on_host(state)) return;
  files_.states->read(place(state).weights.chunk, bytes_of(state.weight_shard.bytes())).wait();
}

// Transfers of one way overlap: each counts from the end of the one before.
void DiskResidency::moved(TrackKind way, int layer, double begin_seconds) {
  (way == TrackKind::kDiskRead ? reading_ : writing_).change([&](Busy& busy) {
    const double now = now_seconds();
    const double begin = std::max(begin_seconds, busy.until);
    busy.seconds += now - begin;
    busy.until = now;
    if (trace_) trace_->add({way, layer, begin, now});
  });
}

Completion DiskResidency::commit(std::int64_t step, std::string user_text) {
  committed_ = commits_.submit(
      [this, step, user_text = std::move(user_text)] {
        const double begin = now_seconds();
        files_.states->commit(step, user_text);
        writing_.change([&](Busy& busy) { busy.seconds += now_seconds() - begin; });
        agree_();
      },
      std::exchange(writes_, {}));
  return committed_;
}

DiskResidency::Use DiskResidency::use() const {
  const auto seconds = [](const Busy& busy) { return busy.seconds; };
  std::uint64_t read = file().bytes_read(), written = file().bytes_written();
  if (files_.gradients) {
    read += files_.gradients->bytes_read();
    written += files_.gradients->bytes_written();
  }
  return {.bytes_read = static_cast<std::int64_t>(read),
          .bytes_written = static_cast<std::int64_t>(written),
          .read_seconds = reading_.look(seconds),
          .write_seconds = writing_.look(seconds)};
}

}  // namespace strata
