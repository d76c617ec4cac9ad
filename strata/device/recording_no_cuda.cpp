// Replaces CUDA graphs in a build without CUDA.
#include "strata/device/no_cuda.h"
#include "strata/device/recording.h"

namespace strata {

std::unique_ptr<Recording> make_cuda_recording() { refuse_cuda("device.recording"); }

}  // namespace strata
