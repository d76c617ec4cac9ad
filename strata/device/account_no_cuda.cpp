#include "strata/device/account.h"
#include "strata/device/cuda_memory.h"

namespace strata {
namespace {

[[noreturn]] void refuse() {
  cuda_backend().require(0);
  throw InternalError({.operation = "device.cuda_memory", .what = "this build has no CUDA"});
}

}  // namespace

void trace_cuda_memory(ChargeMap&) { refuse(); }
DeviceMemory cuda_memory(int) { refuse(); }
void limit_cuda_memory(int, std::int64_t) { refuse(); }

}  // namespace strata
