/// Saves values other than tensors for an operator's backward, by name, in its graph node.
///
/// An omitted tensor is saved as an undefined one, so that every tensor of a node has a fixed
/// index; autograd itself accepts such an argument as an empty optional.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>
#include <string>

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

inline std::optional<at::Tensor> if_defined(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

/// The pointee must outlive the graph of the layer.
inline void save_pointer(AutogradContext* context, const std::string& name, const void* pointer) {
  context->saved_data[name] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(pointer));
}

template <typename T>
T* saved_pointer(AutogradContext* context, const std::string& name) {
  return reinterpret_cast<T*>(static_cast<std::intptr_t>(context->saved_data.at(name).toInt()));
}

}  // namespace strata
