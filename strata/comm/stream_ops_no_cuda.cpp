// Stands for the CUDA operations in a build that has none; nobody comes here, for the device itself is
// refused before (device/device_no_cuda.cpp).
#include "strata/base/errors.h"
#include "strata/comm/stream_ops.h"

namespace strata {

const StreamOps& cuda_stream_ops() {
  throw UserError({.operation = "comm.cuda",
                   .what = "this build of Strata computes on CPUs alone",
                   .expected = "cpu",
                   .got = "cuda",
                   .fix = "set mesh.device=cpu"});
}

}  // namespace strata
