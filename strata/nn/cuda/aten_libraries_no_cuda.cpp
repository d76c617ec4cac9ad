// Replaces the CUDA primitives in a build without CUDA.
#include "strata/device/no_cuda.h"
#include "strata/nn/cuda/libraries.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {

const Primitives& cuda_primitives() { refuse_cuda("nn.cuda"); }
const Primitives& cuda_aten_primitives() { refuse_cuda("nn.cuda"); }
void multiply_by(ProductLibrary) { refuse_cuda("nn.multiply_by"); }

}  // namespace strata
