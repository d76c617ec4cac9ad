/// Moves layers between the device and host memory: weights in when they are needed, gradients out when
/// they are complete. What is updated on the host lives there; the device's weights are copies, and are
/// dropped, never copied back. What lives on a disk passes the host on its way.
///
/// Device bytes follow the program, not the clock: a fetch takes its bytes when it starts, and an offload
/// waits for the one before, so that one leaving gradient is there beside the next.
///
/// Source   Ren et al. 2021 (ZeRO-Offload); Sun et al. 2022 (STRONGHOLD).
/// Threads  a rank's; the copies run on the link's lanes.
/// Cost     a step and layer: its weights in twice (once with a window that keeps it), its gradients out
///          once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "strata/device/link.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/medium.h"

namespace strata {

class DiskMedium;

class HostMedium final : public Medium {
 public:
  /// `below`: of what the layers keep on the device. `trace`, of the copies, outlives the medium.
  explicit HostMedium(LinkOptions link = {}, std::unique_ptr<Medium> below = device_medium(),
                      LaneTrace* trace = nullptr, Device device = {})
      : link_(link, trace, device), below_(std::move(below)) {}
  HostMedium(LinkOptions link, std::unique_ptr<DiskMedium> disk, LaneTrace* trace = nullptr,
             Device device = {});
  ~HostMedium() override;
  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override;
  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override;
  Event written(LayerState& state, StateKind kind, const Event& event) override {
    return below_->written(state, kind, event);
  }

  /// Makes the buffers, of `numel` elements each, that layers borrow for their gradients.
  void make_gradient_buffers(int buffers, std::int64_t numel);

  Link& link() { return link_; }
  const Link& link() const { return link_; }

 private:
  // Whose gradient lies in it until the next layer's turn.
  struct GradientBuffer {
    at::Tensor bytes;
    LayerState* borrower = nullptr;
  };

  void lend_gradient_buffer(LayerState& state);

  Link link_;
  Event offloaded_;  // the last one
  std::vector<GradientBuffer> gradient_buffers_;
  std::size_t next_buffer_ = 0;
  std::unique_ptr<Medium> below_;
  DiskMedium* disk_ = nullptr;  // what is below, if that is one
};

}  // namespace strata
