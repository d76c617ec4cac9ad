#include "strata/exported/operator_call.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/exported/operator_rules.h"
#include "strata/exported/python_layer.h"

namespace strata {
namespace {

constexpr ErrorSource kCallErrors{"exported.operator"};

c10::OperatorHandle require_operator(const GraphNode& node) {
  if (const auto found = find_operator(node.op, node.overload)) return *found;
  if (node.op == kPythonLayer)
    throw kCallErrors.user(node.line, "this layer runs in Python", "a process of Python",
                           "a program without it", "train the model by strata.Pipeline");
  throw kCallErrors.user(node.line, "this libtorch has no operator " + node.op,
                         "operators of the libtorch that Strata was built with",
                         node.op + "." + node.overload,
                         "export the model with that version of torch");
}

// The type of an argument that is given; real_type() names enums, which type() has as integers.
c10::TypePtr given_type(const c10::Argument& expected) {
  const c10::TypePtr type = expected.real_type();
  const auto* optional = type->castRaw<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

bool is_list_of_optional(const c10::TypePtr& type) {
  const auto* list = type->castRaw<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::OptionalType;
}

// x + 1 is an addition of tensors, whose second one takes no part in type promotion.
c10::IValue wrapped(const at::Scalar& number) {
  return c10::IValue(at::native::wrapped_scalar_tensor(number));
}

bool is_fixed(const BatchNumber& number) { return number.per_sample == 0; }

}  // namespace

OperatorCall::OperatorCall(const GraphNode& node,
                           const std::function<int(const std::string&)>& slot_of)
    : op_(require_operator(node)), returns_list_(node.returns_list) {
  std::size_t used = 0;
  for (const c10::Argument& expected : op_.schema().arguments()) {
    const GraphArgument* given = find_argument(node, expected.name());
    if (!given) {
      if (!expected.default_value())
        throw kCallErrors.user(node.line, "an argument of " + node.op + " is missing",
                               expected.name(), "none");
      arguments_.push_back({.fixed = *expected.default_value()});
      continue;
    }
    ++used;
    Argument argument;
    if (const auto* tensor = std::get_if<GraphTensor>(given)) {
      argument = {.kind = Argument::Kind::kTensor, .slots = {slot_of(tensor->name)}};
    } else if (const auto* tensors = std::get_if<GraphTensors>(given)) {
      argument.kind = is_list_of_optional(given_type(expected)) ? Argument::Kind::kOptionalTensors
                                                                : Argument::Kind::kTensors;
      for (const GraphTensor& each : *tensors)
        argument.slots.push_back(each.name.empty() ? -1 : slot_of(each.name));
    } else {
      argument = fixed_argument(node, *given, expected);
    }
    std::ranges::copy_if(argument.slots, std::back_inserter(reads_),
                         [](int slot) { return slot >= 0; });
    arguments_.push_back(std::move(argument));
  }
  if (used != node.arguments.size())
    throw kCallErrors.user(node.line, node.op + " has no such argument",
                           "each argument of its schema once",
                           std::to_string(node.arguments.size()) + " arguments");
  for (const std::string& output : node.outputs)
    writes_.push_back(output.empty() ? -1 : slot_of(output));
}

OperatorCall::Argument OperatorCall::fixed_argument(const GraphNode& node,
                                                    const GraphArgument& given,
                                                    const c10::Argument& expected) const {
  using Kind = Argument::Kind;
  const c10::TypeKind kind = given_type(expected)->kind();
  const bool real = kind == c10::TypeKind::FloatType, tensor = kind == c10::TypeKind::TensorType;
  const bool is_enum = kind == c10::TypeKind::ScalarTypeType ||
                       kind == c10::TypeKind::MemoryFormatType || kind == c10::TypeKind::LayoutType;
  const auto fixed = [](c10::IValue value) { return Argument{.fixed = std::move(value)}; };
  return std::visit(
      [&](const auto& value) -> Argument {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, GraphDevice>) {
          return {.kind = Kind::kDevice};
        } else if constexpr (std::is_same_v<T, at::ScalarType>) {
          if (kind == c10::TypeKind::ScalarTypeType) return fixed(c10::IValue(value));
        } else if constexpr (std::is_same_v<T, at::MemoryFormat>) {
          if (kind == c10::TypeKind::MemoryFormatType) return fixed(c10::IValue(value));
        } else if constexpr (std::is_same_v<T, GraphNone>) {
          return {};
        } else if constexpr (std::is_same_v<T, BatchNumber>) {
          if (is_enum) {
          } else if (tensor && is_fixed(value)) {
            return fixed(wrapped(value.constant));
          } else if (real && is_fixed(value)) {
            return fixed(c10::IValue(static_cast<double>(value.constant)));
          } else if (!tensor && !real) {
            return {.kind = Kind::kNumber, .numbers = {value}};
          }
        } else if constexpr (std::is_same_v<T, GraphNumbers>) {
          return {.kind = Kind::kNumbers, .numbers = value};
        } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, bool>) {
          return fixed(tensor ? wrapped(value) : c10::IValue(value));
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          c10::List<bool> list;
          for (const bool each : value) list.push_back(each);
          return fixed(c10::IValue(list));
        } else if constexpr (std::is_same_v<T, std::string>) {
          if (kind == c10::TypeKind::StringType) return fixed(c10::IValue(value));
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          return fixed(c10::IValue(value));
        }
        throw kCallErrors.user(
            node.line, "the argument " + expected.name() + " of " + node.op + " is of another kind",
            expected.type()->str(), "another kind", "export the model again");
      },
      given);
}

c10::IValue OperatorCall::value_of(const Argument& argument, const std::vector<at::Tensor>& values,
                                   std::int64_t samples, at::Device device) {
  switch (argument.kind) {
    case Argument::Kind::kFixed:
      return argument.fixed;
    case Argument::Kind::kTensor:
      return c10::IValue(values[argument.slots[0]]);
    case Argument::Kind::kTensors: {
      c10::List<at::Tensor> list;
      for (const int slot : argument.slots) list.push_back(slot < 0 ? at::Tensor() : values[slot]);
      return c10::IValue(std::move(list));
    }
    case Argument::Kind::kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (const int slot : argument.slots)
        list.push_back(slot < 0 ? std::optional<at::Tensor>() : values[slot]);
      return c10::IValue(std::move(list));
    }
    case Argument::Kind::kDevice:
      return c10::IValue(device);
    case Argument::Kind::kNumber:
      return c10::IValue(argument.numbers[0].at(samples));
    case Argument::Kind::kNumbers: {
      c10::List<std::int64_t> list;
      for (const BatchNumber& number : argument.numbers) list.push_back(number.at(samples));
      return c10::IValue(std::move(list));
    }
  }
  return {};
}

void OperatorCall::run(std::vector<at::Tensor>& values, std::int64_t samples,
                       at::Device device) const {
  torch::jit::Stack stack;
  stack.reserve(arguments_.size());
  for (const Argument& argument : arguments_)
    stack.push_back(value_of(argument, values, samples, device));
  op_.callBoxed(&stack);
  if (!returns_list_) {
    for (std::size_t i = 0; i < writes_.size(); ++i)
      if (writes_[i] >= 0) values[writes_[i]] = stack.at(i).toTensor();
    return;
  }
  const c10::List<at::Tensor> list = stack.at(0).toTensorList();
  if (list.size() != writes_.size())
    throw kCallErrors.user(op_.schema().name(), "it returns another number of tensors",
                           std::to_string(writes_.size()), std::to_string(list.size()),
                           "export the model again");
  for (std::size_t i = 0; i < writes_.size(); ++i)
    if (writes_[i] >= 0) values[writes_[i]] = list.get(i);
}

}  // namespace strata
