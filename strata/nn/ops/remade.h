/// Holds tensors that a forward has made and that its backward makes again instead of saving them.
///
/// Operators that read the same tensors share a holder, so they are made once. The last reader
/// takes them, and the holder frees everything that it needed to make them.
///
/// Threads  those of a graph's rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "strata/nn/ops/saved_values.h"

namespace strata {

class Remade final : public torch::CustomClassHolder {
 public:
  using Make = std::function<std::vector<at::Tensor>()>;

  /// `make` holds detached tensors: others would keep the graph that made them.
  explicit Remade(Make make) : make_(std::move(make)) {}

  const std::vector<at::Tensor>& get() {
    if (make_) tensors_ = std::exchange(make_, nullptr)();
    return tensors_;
  }
  std::vector<at::Tensor> take() {
    get();
    return std::exchange(tensors_, {});
  }

 private:
  Make make_;  // empty after it ran
  std::vector<at::Tensor> tensors_;
};

/// Null: the tensors are saved.
using RemadePtr = c10::intrusive_ptr<Remade>;

inline void save_remade(AutogradContext* context, const RemadePtr& again) {
  if (again) context->saved_data["again"] = c10::IValue::make_capsule(again);
}

inline RemadePtr saved_remade(AutogradContext* context) {
  const auto found = context->saved_data.find("again");
  if (found == context->saved_data.end()) return {};
  return c10::static_intrusive_pointer_cast<Remade>(found->second.toCapsule());
}

}  // namespace strata
