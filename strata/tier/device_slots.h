/// Keeps slots of device memory for a window of layers, which a copy stream fills while the device
/// computes.
///
/// libtorch's allocator reuses memory in the order of the compute stream, so a copy on another
/// stream to newly allocated memory has to wait for all earlier work of the compute stream. A slot
/// is free when its own last use has ended, and then it is reused without the allocator: copies run
/// ahead of the compute stream as far as there are slots.
///
/// A device without a queue keeps no slots: its memory comes from the allocator and returns there.
///
/// Threads  a rank's.
/// Cost     as many slots as were taken at once. All free slots are freed before a slot of a new
///          size is allocated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/device/device.h"

namespace strata {

class DeviceSlots {
 public:
  /// `compute`: the stream in whose order the allocator reuses memory.
  explicit DeviceSlots(Stream compute) : compute_(std::move(compute)) {}
  ~DeviceSlots();
  DeviceSlots(const DeviceSlots&) = delete;
  DeviceSlots& operator=(const DeviceSlots&) = delete;

  struct Slot {
    at::Tensor bytes;  ///< [numel]
    Completion free;   ///< ends when it may be written
  };
  /// The free slot of this size that was returned first, or a new one.
  Slot take(std::int64_t numel, at::ScalarType dtype);

  /// `used`: ends with the last use of the slot, which comes after the copy to it.
  void give_back(at::Tensor bytes, Completion used);

 private:
  void drop_free();

  Stream compute_;
  std::vector<Slot> free_;  // in the order of their return
};

}  // namespace strata
