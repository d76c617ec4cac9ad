// Stands for the CUDA operations in a build that has none; nobody comes here, for the device itself is
// refused before (device/device_no_cuda.cpp).
#include "strata/comm/stream_ops.h"
#include "strata/device/no_cuda.h"

namespace strata {

const StreamOps& cuda_stream_ops() { refuse_cuda("comm.cuda"); }

}  // namespace strata
