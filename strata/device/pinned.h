/// Gives host memory of an exact size that a device copies from and to at full speed.
///
/// For CUDA its pages are locked and known to the driver; libtorch's pinned memory would be rounded up to a
/// power of two and kept for ever. On a CPU it is memory as any other.
///
/// Shapes   one dimension of bytes, zero, at the beginning of a page; it lives as long as a view of it.
/// Cost     whole pages, charged to the account (null: nobody's). On CUDA about 0.3 s a GB to lock them.
/// Errors   SystemError: over the account's budget; the machine has no room, or doesn't let us lock it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/device/device.h"

namespace strata {

class MemoryAccount;

at::Tensor pinned_bytes(std::int64_t bytes, Device device, MemoryAccount* account);

}  // namespace strata
