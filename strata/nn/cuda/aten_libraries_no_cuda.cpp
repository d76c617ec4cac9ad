// Stands for the CUDA primitives in a build that has none.
#include "strata/device/device.h"
#include "strata/nn/primitives.h"

namespace strata {

const Primitives& cuda_primitives() {
  cuda_backend().require(0);  // refuses with its reason
  return host_primitives();
}

}  // namespace strata
