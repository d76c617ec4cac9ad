/// Asks libtorch's CUDA allocator what accounts need to know; in a build without CUDA nobody comes here.
///
/// Source  c10/cuda/CUDACachingAllocator.h; its tracker says what was asked for, not the 512-byte units.
/// Errors  UserError: a build without CUDA.
#pragma once

#include <cstdint>

namespace strata {

class ChargeMap;
struct DeviceMemory;

/// Tells `charges` of every block from now on; once in a process.
void trace_cuda_memory(ChargeMap& charges);
DeviceMemory cuda_memory(int index);
void limit_cuda_memory(int index, std::int64_t bytes);

}  // namespace strata
