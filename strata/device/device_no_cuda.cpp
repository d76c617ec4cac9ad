// Stands for the CUDA backend in a build that has none: a missing kind of device is a source file
// that refuses, not an #ifdef.
#include "strata/base/errors.h"
#include "strata/device/device.h"

namespace strata {

const DeviceBackend& cuda_backend() {
  throw UserError({.operation = "device.cuda",
                   .what = "this build of Strata computes on CPUs alone",
                   .expected = "cpu",
                   .got = "cuda",
                   .fix = "name the device cpu"});
}

}  // namespace strata
