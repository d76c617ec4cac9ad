// Replaces the CUDA operations in a build without CUDA. Unreachable, because
// device/device_no_cuda.cpp rejects the device first.
#include "strata/comm/stream_ops.h"
#include "strata/device/no_cuda.h"

namespace strata {

const StreamOps& cuda_stream_ops() { refuse_cuda("comm.cuda"); }

}  // namespace strata
