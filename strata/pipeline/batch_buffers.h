/// Brings mini-batches to a device, each input always to the same place for its shape: one copy a step, and a
/// recorded step finds its inputs where it was recorded with them.
///
/// Threads  the rank's. The host's bytes may be written again when place() returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "strata/data/batch.h"
#include "strata/device/device.h"

namespace strata {

class BatchBuffers {
 public:
  explicit BatchBuffers(Device device) : device_(device), stream_(Stream::compute(device)) {}
  ~BatchBuffers();
  BatchBuffers(const BatchBuffers&) = delete;
  BatchBuffers& operator=(const BatchBuffers&) = delete;

  /// The same mini-batch; what was placed before is gone for whoever is given work behind this.
  MiniBatch place(MiniBatch batch);

 private:
  /// On a device, pinned host memory that the next copies start from in turn: one is filled while the
  /// one before may still be read.
  struct Staging {
    at::Tensor bytes;
    Completion copied;
  };
  struct Buffer {
    at::Tensor tensor;
    std::array<Staging, 2> staging;
    int next = 0;
  };
  using Key = std::tuple<int, at::ScalarType, std::vector<std::int64_t>>;  // input, type, shape

  void fill(Buffer& buffer, const at::Tensor& input);

  Device device_;
  Stream stream_;
  std::map<Key, Buffer> buffers_;
};

}  // namespace strata
