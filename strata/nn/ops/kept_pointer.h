/// Keeps a pointer for the backward of an operator, among the plain data of its graph node.
///
/// What it points to must outlive the graph of the layer.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>

namespace strata {

inline c10::IValue keep_pointer(const void* pointer) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(pointer));
}

template <typename T>
T* kept_pointer(const c10::IValue& kept) {
  return reinterpret_cast<T*>(static_cast<std::intptr_t>(kept.toInt()));
}

}  // namespace strata
