// Stands for CUDA graphs in a build that has no CUDA.
#include "strata/base/errors.h"
#include "strata/device/recording.h"

namespace strata {

std::unique_ptr<Recording> make_cuda_recording() {
  throw UserError({.operation = "device.recording",
                   .what = "this build of Strata computes on CPUs alone",
                   .expected = "cpu",
                   .got = "cuda",
                   .fix = "set mesh.device=cpu"});
}

}  // namespace strata
