// The tracker runs in the allocating thread while it holds the allocator's lock: it must not throw
// or call libtorch. A subclass of the allocator could refuse, but its virtual functions differ
// between the supported versions of libtorch.
//
// Frees are credited at FREE_COMPLETED, not FREE_REQUESTED: until then another stream still uses
// the memory.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "strata/device/account.h"
#include "strata/device/charge_map.h"
#include "strata/device/cuda_memory.h"

namespace strata {

namespace allocator = c10::cuda::CUDACachingAllocator;

void trace_cuda_memory(ChargeMap& charges) {
  // The first tensor would do this; without it there is no allocator to attach to.
  allocator::init(c10::cuda::device_count());
  allocator::attachAllocatorTraceTracker([&charges](const allocator::TraceEntry& entry) {
    const auto* address = reinterpret_cast<const void*>(entry.addr_);
    if (entry.action_ == allocator::TraceEntry::ALLOC) {
      charges.allocated(address, static_cast<std::int64_t>(entry.size_),
                        current_memory_account(DeviceKind::kCuda));
    } else if (entry.action_ == allocator::TraceEntry::FREE_COMPLETED) {
      charges.freed(address);
    }
  });
}

DeviceMemory cuda_memory(int index) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const auto stats = allocator::getDeviceStats(device);
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return {.requested_bytes = stats.requested_bytes[kAll].current,
          .allocated_bytes = stats.allocated_bytes[kAll].current,
          .reserved_bytes = stats.reserved_bytes[kAll].current,
          .total_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
}

void limit_cuda_memory(int index, std::int64_t bytes) {
  const double fraction = bytes == 0 ? 1.0 : memory_fraction(bytes, cuda_memory(index).total_bytes);
  allocator::setMemoryFraction(fraction, static_cast<c10::DeviceIndex>(index));
}

}  // namespace strata
