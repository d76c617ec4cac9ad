/// Copies mini-batches to a device, each input of a shape always to the same address: one copy per
/// step, and a recorded step finds its inputs at the recorded addresses.
///
/// Threads  the rank's. The host's bytes may be overwritten when place() returns.
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

  /// Returns the same mini-batch on the device. Work that is enqueued after this no longer sees the
  /// previous one.
  MiniBatch place(MiniBatch batch);

 private:
  /// On a device: pinned host memory for the copies, used in turn. One buffer is filled while the
  /// previous one may still be read.
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
