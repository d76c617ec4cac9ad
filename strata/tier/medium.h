/// Brings a layer's weights to the device and lets them go: the seam for host memory, disk and
/// peers.
#pragma once

#include <memory>

namespace strata {

struct LayerBuffers;

class Medium {
 public:
  virtual ~Medium() = default;
  virtual void prefetch(LayerBuffers& buffers) = 0;  ///< starts to bring them; returns at once
  virtual void fetch(LayerBuffers& buffers) = 0;     ///< they are there when it returns
  virtual void release(LayerBuffers& buffers) = 0;   ///< they may go
};

/// Everything stays on the device.
std::unique_ptr<Medium> device_medium();

}  // namespace strata
