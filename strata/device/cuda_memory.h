/// Reads libtorch's CUDA allocator for accounts; a build without CUDA refuses.
///
/// Source  c10/cuda/CUDACachingAllocator.h; its tracker reports requested bytes, not the 512-byte
///         units.
/// Errors  UserError: a build without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

namespace strata {

class ChargeMap;
struct DeviceMemory;

/// Reports every block to `charges` from now on; once per process.
void trace_cuda_memory(ChargeMap& charges);
DeviceMemory cuda_memory(int index);
void limit_cuda_memory(int index, std::int64_t bytes);

/// Share of a device of `total` bytes that an allocator may hold for tensors of `bytes`: its pages
/// of 2 and 20 MiB are partly used, while accounts are exact.
constexpr double memory_fraction(std::int64_t bytes, std::int64_t total) {
  const std::int64_t room = std::max(std::int64_t{64} << 20, bytes / 32);
  return std::min(1.0, static_cast<double>(bytes + room) / static_cast<double>(total));
}

}  // namespace strata
