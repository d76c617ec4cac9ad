// Replaces the GPU's primitives in a build without CUDA.
#include "strata/device/no_cuda.h"
#include "strata/optim/step_primitives.h"

namespace strata {

const StepPrimitives& cuda_step_primitives() { refuse_cuda("optim.cuda"); }

}  // namespace strata
