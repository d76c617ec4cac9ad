/// The operator by which a graph calls a layer that runs in Python, in a process that has an
/// interpreter:
///
///     strata_python::layer(Tensor[] inputs, Tensor[] weights, str name, int pipeline) -> Tensor[]
///
/// strata/python/strata/python_call.py defines it and runs the user's module, with autograd.
#pragma once

#include <string_view>

namespace strata {

inline constexpr std::string_view kPythonLayer = "strata_python::layer";

}  // namespace strata
