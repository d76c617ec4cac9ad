#include "strata/exported/operator_call.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>

#include <utility>

#include "strata/base/error_source.h"

namespace strata {
namespace {

constexpr ErrorSource kCallErrors{"exported.operator"};

c10::OperatorHandle find(const GraphNode& node) {
  const auto found = c10::Dispatcher::singleton().findSchema({node.op, node.overload});
  if (!found)
    throw kCallErrors.user(node.line, "this libtorch has no operator " + node.op,
                           "operators of the libtorch that Strata was built with",
                           node.op + "." + node.overload,
                           "export the model with that version of torch");
  return *found;
}

bool is_list_of_optional(const c10::TypePtr& type) {
  const auto* list = type->castRaw<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::OptionalType;
}

}  // namespace

OperatorCall::OperatorCall(const GraphNode& node,
                           const std::function<int(const std::string&)>& slot_of)
    : op_(find(node)), returns_list_(node.returns_list) {
  const std::vector<c10::Argument>& expected = op_.schema().arguments();
  std::size_t used = 0;
  for (const c10::Argument& argument : expected) {
    const GraphArgument* given = nullptr;
    for (const auto& [name, value] : node.arguments)
      if (name == argument.name()) given = &value;
    if (!given && !argument.default_value())
      throw kCallErrors.user(node.line, "an argument of " + node.op + " is missing",
                             argument.name(), "none");
    used += given ? 1 : 0;
    std::vector<int> slots;
    if (given) {
      if (const auto* tensor = std::get_if<GraphTensor>(given)) slots = {slot_of(tensor->name)};
      if (const auto* tensors = std::get_if<GraphTensors>(given))
        for (const GraphTensor& each : *tensors)
          slots.push_back(each.name.empty() ? -1 : slot_of(each.name));
    }
    for (const int slot : slots)
      if (slot >= 0) reads_.push_back(slot);
    // An empty text stands for the schema's default; no schema has such an argument.
    arguments_.push_back(given ? *given : GraphArgument(std::string()));
    slots_.push_back(std::move(slots));
  }
  if (used != node.arguments.size())
    throw kCallErrors.user(node.line, node.op + " has no such argument", "arguments of its schema",
                           std::to_string(node.arguments.size() - used) + " others");
  for (const std::string& output : node.outputs)
    writes_.push_back(output.empty() ? -1 : slot_of(output));
}

c10::IValue OperatorCall::value_of(const GraphArgument& argument, const c10::Argument& expected,
                                   std::span<const at::Tensor> values, std::int64_t batch,
                                   at::Device device) const {
  const c10::TypeKind kind = expected.type()->kind();
  const bool real = kind == c10::TypeKind::FloatType, tensor = kind == c10::TypeKind::TensorType;
  // x + 1 is an addition of tensors, whose second one takes no part in type promotion.
  const auto wrapped = [](const at::Scalar& number) {
    return c10::IValue(at::native::wrapped_scalar_tensor(number));
  };
  return std::visit(
      [&](const auto& value) -> c10::IValue {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, GraphDevice>) {
          return c10::IValue(device);
        } else if constexpr (std::is_same_v<T, BatchNumber>) {
          const std::int64_t number = value.at(batch);
          if (tensor) return wrapped(number);
          return real ? c10::IValue(static_cast<double>(number)) : c10::IValue(number);
        } else if constexpr (std::is_same_v<T, GraphNumbers>) {
          std::vector<std::int64_t> numbers;
          for (const BatchNumber& each : value) numbers.push_back(each.at(batch));
          return c10::IValue(numbers);
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          c10::List<bool> list;
          for (const bool each : value) list.push_back(each);
          return c10::IValue(list);
        } else if constexpr (std::is_same_v<T, GraphNone>) {
          return c10::IValue();
        } else if constexpr (std::is_same_v<T, std::string>) {
          return value.empty() ? *expected.default_value() : c10::IValue(value);
        } else if constexpr (std::is_same_v<T, GraphTensor> || std::is_same_v<T, GraphTensors>) {
          return c10::IValue();  // run() reads them by their slots
        } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, bool>) {
          return tensor ? wrapped(value) : c10::IValue(value);
        } else {
          return c10::IValue(value);
        }
      },
      argument);
}

void OperatorCall::run(std::vector<at::Tensor>& values, std::int64_t batch,
                       at::Device device) const {
  const std::vector<c10::Argument>& expected = op_.schema().arguments();
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const std::vector<int>& slots = slots_[i];
    if (std::holds_alternative<GraphTensor>(arguments_[i])) {
      stack.emplace_back(values[slots[0]]);
    } else if (std::holds_alternative<GraphTensors>(arguments_[i])) {
      if (is_list_of_optional(expected[i].type())) {
        c10::List<std::optional<at::Tensor>> list;
        for (const int slot : slots)
          list.push_back(slot < 0 ? std::optional<at::Tensor>() : values[slot]);
        stack.emplace_back(std::move(list));
      } else {
        c10::List<at::Tensor> list;
        for (const int slot : slots) list.push_back(values.at(slot));
        stack.emplace_back(std::move(list));
      }
    } else {
      stack.push_back(value_of(arguments_[i], expected[i], values, batch, device));
    }
  }
  op_.callBoxed(&stack);
  if (returns_list_) {
    const c10::List<at::Tensor> list = stack.at(0).toTensorList();
    if (list.size() != writes_.size())
      throw kCallErrors.user(op_.schema().name(), "it returns another number of tensors",
                             std::to_string(writes_.size()), std::to_string(list.size()),
                             "export the model again");
    for (std::size_t i = 0; i < writes_.size(); ++i)
      if (writes_[i] >= 0) values[writes_[i]] = list.get(i);
    return;
  }
  for (std::size_t i = 0; i < writes_.size(); ++i)
    if (writes_[i] >= 0) values[writes_[i]] = stack.at(i).toTensor();
}

}  // namespace strata
