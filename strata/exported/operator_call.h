/// Calls an operator of ATen by its name, through libtorch's dispatcher, as PyTorch does.
///
/// Errors  UserError `[exported.operator]`: this libtorch has no such operator, or the arguments do
///         not fit its schema. What the operator throws.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "strata/exported/exported_program.h"

namespace strata {

class OperatorCall {
 public:
  /// `slot_of`: the place of a value among those of the layer.
  OperatorCall(const GraphNode& node, const std::function<int(const std::string&)>& slot_of);

  /// Reads and writes values by their slots. `batch`: samples; `device`: of the layer's inputs.
  void run(std::vector<at::Tensor>& values, std::int64_t batch, at::Device device) const;

  const std::vector<int>& reads() const { return reads_; }
  const std::vector<int>& writes() const { return writes_; }

 private:
  c10::IValue value_of(const GraphArgument& argument, const c10::Argument& expected,
                       std::span<const at::Tensor> values, std::int64_t batch,
                       at::Device device) const;

  c10::OperatorHandle op_;
  std::vector<GraphArgument> arguments_;  // in the order of the schema
  std::vector<std::vector<int>> slots_;   // of the tensors of each argument; -1: none
  std::vector<int> reads_, writes_;       // writes: -1: not kept
  bool returns_list_ = false;
};

}  // namespace strata
