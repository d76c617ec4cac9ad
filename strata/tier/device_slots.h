/// Gives out places on a device to what a copy brings there while the device computes: a window of layers.
///
/// libtorch's allocator gives memory out again in the order of the compute stream, so a copy on another
/// stream into memory that it has just given out must wait for all that was given to the compute stream
/// so far. A place of these is free when its own last user is done, and is the same place again: copies
/// run ahead of the compute stream as far as there are places.
///
/// A device without a queue keeps none: there, a place is memory like any other.
///
/// Threads  a rank's.
/// Cost     as many places as were out at once, and never one that is free beside a new one of another
///          size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/device/device.h"

namespace strata {

class DeviceSlots {
 public:
  /// `compute`: the stream in whose order the device's memory is given out.
  explicit DeviceSlots(Stream compute) : compute_(std::move(compute)) {}
  ~DeviceSlots();
  DeviceSlots(const DeviceSlots&) = delete;
  DeviceSlots& operator=(const DeviceSlots&) = delete;

  struct Slot {
    at::Tensor bytes;  ///< [numel]
    Completion free;   ///< who writes to it does so behind this
  };
  /// The one that was given back longest ago.
  Slot take(std::int64_t numel, at::ScalarType dtype);

  /// `used`: its last use, and so what it was filled by.
  void give_back(at::Tensor bytes, Completion used);

 private:
  void drop_free();

  Stream compute_;
  std::vector<Slot> free_;  // the one that was given back longest ago in front
};

}  // namespace strata
