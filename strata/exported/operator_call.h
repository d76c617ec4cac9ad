/// Calls an operator of ATen by its name, through libtorch's dispatcher, as PyTorch does.
///
/// Errors  UserError `[exported.operator]`: this libtorch has no such operator, or the arguments do
///         not fit its schema. What the operator throws.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/exported/exported_program.h"

namespace strata {

class OperatorCall {
 public:
  /// `slot_of`: the place of a value among those of the layer.
  OperatorCall(const GraphNode& node, const std::function<int(const std::string&)>& slot_of);

  /// Reads and writes values by their slots. `samples`: of the batch; `device`: of the layer.
  void run(std::vector<at::Tensor>& values, std::int64_t samples, at::Device device) const;

  const std::vector<int>& reads() const { return reads_; }
  const std::vector<int>& writes() const { return writes_; }  ///< -1: not kept

 private:
  // An argument of the schema. Only tensors, devices and numbers of samples differ from call to
  // call.
  struct Argument {
    enum class Kind { kFixed, kTensor, kTensors, kOptionalTensors, kDevice, kNumber, kNumbers };
    Kind kind = Kind::kFixed;
    c10::IValue fixed = {};
    std::vector<int> slots = {};  // of tensors; -1: none
    GraphNumbers numbers = {};
  };

  Argument fixed_argument(const GraphNode& node, const GraphArgument& given,
                          const c10::Argument& expected) const;
  static c10::IValue value_of(const Argument& argument, const std::vector<at::Tensor>& values,
                              std::int64_t samples, at::Device device);

  c10::OperatorHandle op_;
  std::vector<Argument> arguments_;  // in the order of the schema
  std::vector<int> reads_, writes_;
  bool returns_list_ = false;
};

}  // namespace strata
