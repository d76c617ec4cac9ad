/// Brings a layer's bytes to the device and lets them go: the seam for host memory, disk and peers.
#pragma once

#include <memory>

namespace strata {

struct LayerBuffers;

class Medium {
 public:
  virtual ~Medium() = default;
  virtual void fetch(LayerBuffers& buffers) = 0;    ///< before the first lease
  virtual void release(LayerBuffers& buffers) = 0;  ///< after the last lease
};

/// Everything stays on the device.
std::unique_ptr<Medium> device_medium();

}  // namespace strata
