/// Refuses what needs CUDA: the one error of the sources that stand in for CUDA's in a build without it
/// (*_no_cuda.cpp).
#pragma once

#include <string>

namespace strata {

/// Errors  UserError, always.
[[noreturn]] void refuse_cuda(std::string operation);

}  // namespace strata
