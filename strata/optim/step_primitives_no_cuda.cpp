// Stands for the end of a step on a GPU in a build that has no CUDA.
#include "strata/base/errors.h"
#include "strata/optim/step_primitives.h"

namespace strata {

const StepPrimitives& cuda_step_primitives() {
  throw UserError({.operation = "optim.cuda",
                   .what = "this build of Strata computes on CPUs alone",
                   .expected = "cpu",
                   .got = "cuda",
                   .fix = "set mesh.device=cpu"});
}

}  // namespace strata
