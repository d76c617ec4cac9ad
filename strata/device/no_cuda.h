/// Throws the one error of all sources that replace CUDA's in a build without it (*_no_cuda.cpp).
#pragma once

#include <string>

namespace strata {

/// Errors  UserError, always.
[[noreturn]] void refuse_cuda(std::string operation);

}  // namespace strata
