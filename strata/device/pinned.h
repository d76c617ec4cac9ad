/// Allocates host memory of an exact size that a device copies from and to at full speed.
///
/// For CUDA its pages are locked and registered with the driver; libtorch's pinned memory would be
/// rounded up to a power of two and never freed. On a CPU it is ordinary memory.
///
/// Shapes   one dimension of bytes, zeroed, at the beginning of a page; lives as long as any view.
/// Cost     whole pages, charged to `account` (null: not charged). On CUDA locking takes about 0.3
///          s per GB.
/// Errors   SystemError: over the account's budget, or the machine has no room or forbids locking.
///          UserError: the device does not exist. InternalError: no bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/device/device.h"

namespace strata {

class MemoryAccount;

at::Tensor pinned_bytes(std::int64_t bytes, Device device, MemoryAccount* account);

}  // namespace strata
