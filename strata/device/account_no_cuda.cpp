// Replaces the trace of libtorch's CUDA allocator in a build without CUDA.
#include "strata/device/account.h"
#include "strata/device/cuda_memory.h"
#include "strata/device/no_cuda.h"

namespace strata {

void trace_cuda_memory(ChargeMap&) { refuse_cuda("device.trace_memory"); }
DeviceMemory cuda_memory(int) { refuse_cuda("device.memory"); }
void limit_cuda_memory(int, std::int64_t) { refuse_cuda("device.limit_memory"); }

}  // namespace strata
