// A transfer depends only on work that was submitted before it, so there is no deadlock: reads wait
// for updates, which wait for earlier reads.
//
// A staging buffer begins with a layer's weights, if they are on the disk, followed by the
// optimizer states. Each part has whole disk blocks, like its chunk.
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

// Charges `account` until the result is destroyed.
std::shared_ptr<void> charged_for(std::int64_t bytes, MemoryAccount* account) {
  if (bytes == 0 || !account) return nullptr;
  account->charge(bytes);
  return {account, [bytes](MemoryAccount* charged) { charged->credit(bytes); }};
}

// The buffers of a kind in a staging buffer. 16-bit ones are last, which keeps the others aligned.
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
  for (const auto& [number, layer] : layers) {
    Chunks& kinds = chunks_[number];
    const auto set = [&](StateKind kind, int chunk, std::int64_t offset, bool stored) {
      kinds[static_cast<int>(kind)] = {.number = chunk, .offset = offset, .stored = stored};
    };
    const auto stored = [&](int chunk) { return chunk >= 0 && file().has(chunk); };
    const bool in_front = chunks->weights >= 0 && !layer.weights_on_host;
    set(StateKind::kWeightShard, chunks->weights, 0, stored(chunks->weights));
    set(StateKind::kOptimizer, chunks->states, in_front ? file().chunk_bytes(chunks->weights) : 0,
        stored(chunks->states));
    set(StateKind::kGradientShard, chunks->gradients, 0, /*stored=*/false);
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
  const Chunk& chunk = this->chunk(state, kind);
  return buffer.bytes.narrow(0, chunk.offset, file_of(kind).chunk_bytes(chunk.number));
}

// Ends when all of the work has ended. A device's events cannot call back: an executor waits for
// them.
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

// A kind that was never written is zero, like a new buffer in memory.
Completion DiskResidency::read(StagingBuffer& buffer, LayerState& state, StateKind kind) {
  const Chunk& chunk = this->chunk(state, kind);
  std::vector<Completion> after = buffer.busy;
  after.push_back(state.pending_on(kind));
  Completion arrived =
      under_way(ended(std::move(after))
                    .and_then([this, &file = file_of(kind), chunk, layer = state.layer,
                               into = bytes_of(part_of(buffer, state, kind))] {
                      if (chunk.stored)
                        return timed(TrackKind::kDiskRead, layer, {},
                                     file.read(chunk.number, into).release());
                      std::memset(into.data(), 0, into.size());
                      return Completion();
                    }));
  buffer.busy = {arrived};
  return arrived;
}

Completion DiskResidency::write(LayerState& state, StateKind kind, at::Tensor bytes,
                                std::vector<Completion> after) {
  Chunk& chunk = this->chunk(state, kind);
  chunk.stored = true;
  const bool committed = kind != StateKind::kGradientShard;
  if (committed) after.push_back(committed_);
  Completion done = under_way(ended(std::move(after))
                                  .and_then([this, &file = file_of(kind), chunk = chunk.number,
                                             layer = state.layer, bytes = std::move(bytes)] {
                                    return timed(TrackKind::kDiskWrite, layer, bytes,
                                                 file.write(chunk, bytes_of(bytes)).release());
                                  }));
  if (committed) writes_.push_back(done);
  return done;
}

// Ends with the transfer, after its time is recorded and `used` is released.
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

std::unique_ptr<Transfer> DiskResidency::fetch(LayerState& state, StateKind kind) {
  StagingRing& ring = ring_of(kind);
  StagingBuffer* staging = ring.of(state.layer);
  // A write may still read the bytes of the last pin: each pin has its own staging buffer.
  if (!staging || staging->pins == 0) staging = &ring.take(state.layer);
  ++staging->pins;
  const Completion arrived = read(*staging, state, kind);
  if (kind == StateKind::kWeightShard) staging->complete = {arrived};
  auto* begin = static_cast<std::byte*>(part_of(*staging, state, kind).mutable_data_ptr());
  for (FlatBuffer* flat : buffers_of(state, kind)) {
    // Views: the staging buffer outlives them.
    flat->install(at::from_blob(begin, flat->tensor().sizes(), flat->tensor().options()));
    begin += flat->bytes().nbytes();
  }
  return std::make_unique<Arrival>(arrived);
}

std::unique_ptr<Transfer> DiskResidency::evict(LayerState& state, StateKind kind) {
  StagingBuffer* const staging = ring_of(kind).of(state.layer);
  STRATA_CHECK(staging && staging->pins > 0, "tier.disk_residency");
  for (FlatBuffer* flat : buffers_of(state, kind)) flat->remove();
  --staging->pins;
  return nullptr;
}

Completion DiskResidency::store(LayerState& state, StateKind kind, const Completion& updated) {
  StagingBuffer* const buffer = ring_of(kind).of(state.layer);
  STRATA_CHECK(buffer != nullptr, "tier.disk_residency");
  if (kind == StateKind::kWeightShard) buffer->complete = {updated};
  Completion done = write(state, kind, part_of(*buffer, state, kind), {updated});
  buffer->busy.push_back(done);
  return done;
}

StagingBuffer& DiskResidency::stage_weights(LayerState& state) {
  const bool stay = !state.placement.tiers.fetches_weights();
  // Weights that stay on the device are copied there once a step, from the buffer of their update.
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

void DiskResidency::forget_gradients(LayerState& state) {
  chunk(state, StateKind::kGradientShard).stored = false;
}

// Whether the layer's states are on the disk and its weights on the host.
bool DiskResidency::keeps(const LayerState& state) const {
  return chunks_.contains(state.layer) && state.home(StateKind::kWeightShard) == Home::kHost;
}

void DiskResidency::keep(LayerState& state) {
  if (!keeps(state)) return;
  state.busy = write(state, StateKind::kWeightShard, state.weight_shard.bytes(),
                     {state.pending_on(StateKind::kWeightShard)});
}

void DiskResidency::restore(LayerState& state) {
  if (!keeps(state)) return;
  files_.states
      ->read(chunk(state, StateKind::kWeightShard).number, bytes_of(state.weight_shard.bytes()))
      .wait();
}

// Transfers of one direction overlap: each counts from the end of the previous one.
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
