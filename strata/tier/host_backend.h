/// Copies weights from host memory to the device when they are needed, and gradients to the host
/// when they are complete, for layers that are updated on the host. The device has copies of the
/// weights, which are dropped and never copied back.
///
/// The device memory in use depends on the program, not on the speed of the copies: a fetch takes
/// its memory when it starts, and an offload waits for the previous offload. So one gradient in
/// transit is in memory in addition to the next one; the last one of a step stays until
/// end_offload().
///
/// With an asynchronous device no call makes the rank wait. The copies wait in stream order
/// instead:
///   - weights are copied to a slot (device_slots.h) after its last use;
///   - a gradient is copied after the kernels that compute it, and its memory is reused after the
///     copy.
///
/// Source   Ren et al. 2021 (ZeRO-Offload); Sun et al. 2022 (STRONGHOLD).
/// Threads  a rank's; the copies run on the link's executors.
/// Cost     a step and layer: its weights to the device twice (once if the window keeps them), its
///          gradients to the host once.
/// Errors   InternalError: bytes that are not in host memory. A completion has the error of its
///          copy or of the work that the copy waits for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "strata/device/link.h"
#include "strata/tier/device_slots.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/state_backend.h"

namespace strata {

class DiskResidency;

/// The streams of a rank: its work, and the copies to and from its device.
struct CopyStreams {
  CopyStreams(Device device = {})  // NOLINT: implicit
      : CopyStreams(Stream::compute(device), Stream(device), Stream(device)) {}
  CopyStreams(Stream compute, Stream to_device, Stream to_host)
      : compute(std::move(compute)), to_device(std::move(to_device)), to_host(std::move(to_host)) {}

  Stream compute, to_device, to_host;
};

class HostBackend final : public StateBackend {
 public:
  /// `disk`: has the weights with Home::kDiskCopy and the shards with Home::kDisk; null: there are
  /// none. `trace` records the copies and outlives the backend.
  explicit HostBackend(LinkOptions link = {}, DiskResidency* disk = nullptr,
                       TrackTrace* trace = nullptr, const CopyStreams& streams = {});

  /// Kinds with the homes kHost, kHostCopy, kDiskCopy and kOffloaded.
  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override;
  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override;

  /// Starts to copy elements of a pinned shard, from `begin` on, to `to` on the device, when the
  /// shard is complete and the compute stream has done its work so far. The caller makes the
  /// compute stream wait for the result before it frees `to`.
  Completion bring_shard(LayerState& state, StateKind kind, std::int64_t begin,
                         const at::Tensor& to);

  /// Starts to copy gradients on the device to elements of the gradient shard, from `begin` on,
  /// when the compute stream has done its work so far. Keeps `from` until it is copied.
  Completion offload_gradients(LayerState& state, std::int64_t begin, const at::Tensor& from);

  /// Ends the offloads of a step: the memory of the last gradient is freed after its copy.
  void end_offload();

  /// Makes host buffers of `numel` elements each, which layers share for their gradients. They are
  /// charged to the calling thread's account.
  void make_gradient_buffers(int buffers, std::int64_t numel);

  Link& link() { return link_; }
  const Link& link() const { return link_; }

 private:
  struct GradientBuffer {
    at::Tensor bytes;
    LayerState* borrower = nullptr;  // the layer whose gradient is in it
  };

  void assign_gradient_buffer(LayerState& state);
  std::unique_ptr<Transfer> fetch_weights(LayerState& state, bool from_disk);

  Stream compute_;
  DeviceSlots slots_;
  at::Tensor leaving_;    // the gradient in transit, on an asynchronous device
  Completion offloaded_;  // the last offload
  Link link_;             // destroyed before the memory that it copies
  std::vector<GradientBuffer> gradient_buffers_;
  std::size_t next_buffer_ = 0;
  DiskResidency* disk_;
};

}  // namespace strata
