/// Moves layers between the device and host memory: weights in when they are needed, gradients out when
/// they are complete. What is updated on the host lives there; the device's weights are copies, and are
/// dropped, never copied back. What lives on a disk passes the host on its way.
///
/// Device bytes follow the program, not the clock: a fetch takes its bytes when it starts, and an offload
/// waits for the one before, so that one leaving gradient is there beside the next; the last one of a step is there
/// until end_offload().
///
/// A device that works behind the rank's back waits in its place: nothing here makes the rank wait for it.
/// Copies go behind each other and behind events of the compute stream:
///   - weights come into a place (device_slots.h) behind its last use, and are used behind their arrival;
///   - a gradient leaves behind what made it, and its memory is given out again behind its copy.
///
/// Source   Ren et al. 2021 (ZeRO-Offload); Sun et al. 2022 (STRONGHOLD).
/// Threads  a rank's; the copies run on the link's copy streams.
/// Cost     a step and layer: its weights in twice (once with a window that keeps it), its gradients out
///          once.
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

/// Of a rank: where it computes, and where copies to and from its device run.
struct CopyStreams {
  CopyStreams(Device device = {})  // NOLINT: any device has them
      : CopyStreams(Stream::compute(device), Stream(device), Stream(device)) {}
  CopyStreams(Stream compute, Stream to_device, Stream to_host)
      : compute(std::move(compute)), to_device(std::move(to_device)), to_host(std::move(to_host)) {}

  Stream compute, to_device, to_host;
};

class HostBackend final : public StateBackend {
 public:
  /// `below`: of what the layers keep on the device. `trace`, of the copies, outlives the backend.
  explicit HostBackend(LinkOptions link = {},
                       std::unique_ptr<StateBackend> below = resident_backend(),
                       TrackTrace* trace = nullptr, const CopyStreams& streams = {});
  HostBackend(LinkOptions link, std::unique_ptr<DiskResidency> disk, TrackTrace* trace = nullptr,
              const CopyStreams& streams = {});
  ~HostBackend() override;
  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override;
  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override;
  Completion bring_shard(LayerState& state, StateKind kind, std::int64_t begin,
                         const at::Tensor& to) override;
  Completion offload_gradients(LayerState& state, std::int64_t begin,
                               const at::Tensor& from) override;
  void begin_gradients(LayerState& state) override;
  Completion read_until(LayerState& state, StateKind kind, const Completion& event) override;
  void end_offload() override;
  Completion written(LayerState& state, StateKind kind, const Completion& event) override;

  /// Makes the buffers, of `numel` elements each, that layers borrow for their gradients; charged to the
  /// calling thread's account.
  void make_gradient_buffers(int buffers, std::int64_t numel);

  Link& link() { return link_; }
  const Link& link() const { return link_; }

 private:
  // Whose gradient lies in it until the next layer's turn.
  struct GradientBuffer {
    at::Tensor bytes;
    LayerState* borrower = nullptr;
  };

  void assign_gradient_buffer(LayerState& state);

  Stream compute_;
  DeviceSlots slots_;
  at::Tensor leaving_;    // of a device that works behind the rank's back: what is offloaded
  Completion offloaded_;  // the last one
  Link link_;             // behind what it copies from and to
  std::vector<GradientBuffer> gradient_buffers_;
  std::size_t next_buffer_ = 0;
  std::unique_ptr<StateBackend> below_;
  std::unique_ptr<DiskResidency> disk_;  // of the kinds that live there; null: none does
};

}  // namespace strata
