// A kind of device that a build lacks is a source file that refuses (cuda/primitives_no_cuda.cpp).
#include "strata/nn/primitives.h"

namespace strata {

const Primitives& primitives(const at::Tensor& x) {
  static const Primitives& host = host_primitives();
  return x.is_cpu() ? host : cuda_primitives();
}

}  // namespace strata
