#include "strata/exported/operator_rules.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <set>

#include "strata/exported/python_layer.h"
#include "strata/exported/random_step.h"

namespace strata {
namespace {

constexpr std::string_view kAten = "aten::";

std::string_view name_of(const std::string& op) {
  return std::string_view(op).substr(std::min(op.size(), kAten.size()));
}

const std::set<std::string_view> kRecurrent = {"lstm", "gru", "rnn_tanh", "rnn_relu"};

// Results that may be an argument itself, which the schemas do not say.
const std::set<std::string_view> kMayReturnArguments = {"dropout",
                                                        "atleast_1d",
                                                        "atleast_2d",
                                                        "atleast_3d",
                                                        "broadcast_tensors",
                                                        "meshgrid",
                                                        "conj_physical",
                                                        "cartesian_prod",
                                                        "unsafe_chunk",
                                                        "unsafe_split",
                                                        "unsafe_split_with_sizes",
                                                        "type_as"};

template <typename T>
const T* argument(const GraphNode& node, const std::string& name) {
  const GraphArgument* found = find_argument(node, name);
  return found ? std::get_if<T>(found) : nullptr;
}

bool has_tensor(const GraphNode& node, const std::string& name) {
  const auto* tensor = argument<GraphTensor>(node, name);
  return tensor && !tensor->name.empty();
}

bool draws(const GraphNode& node, const std::string_view name) {
  const auto found = find_operator(node.op, node.overload);
  if (!found || !found->hasTag(at::Tag::nondeterministic_seeded)) return false;
  if (name == "scaled_dot_product_attention" || is_random_step(without_change(node))) return false;
  if (!kRecurrent.contains(name)) return true;
  const auto* train = argument<bool>(node, "train");
  const auto* real = argument<double>(node, "dropout");
  const auto* whole = argument<BatchNumber>(node, "dropout");
  const bool drops = real ? *real != 0 : !whole || *whole != BatchNumber{};
  return drops && !(train && !*train);
}

// Operators that return unwritten memory, that read other bytes than those of their
// arguments, or that trust what a file says.
bool trusts_too_much(const GraphNode& node, const std::string_view name) {
  static const std::set<std::string_view> kNames = {"from_file", "resize",   "resize_as",
                                                    "set",       "set_data", "segment_reduce"};
  static const std::set<std::string_view> kInternal = {"_to_copy", "_weight_norm"};
  if (kNames.contains(name) || name.starts_with("empty") || name.starts_with("new_empty") ||
      name.starts_with("mkldnn_") || name.starts_with("fbgemm_") || name.starts_with("quantize") ||
      name.starts_with("sparse_") || name.ends_with("_backward") ||
      name.ends_with("_backward_data"))
    return true;
  if (name == "as_strided" || name == "as_strided_scatter")
    return find_argument(node, "storage_offset") != nullptr;
  return name.starts_with("_") && !name.starts_with("__") && !kInternal.contains(name);
}

bool keeps_statistics(const GraphNode& node, const std::string_view name) {
  if (name == "batch_norm" || !has_tensor(node, "running_mean")) return false;
  return name == "instance_norm" || name.ends_with("batch_norm");
}

}  // namespace

std::optional<c10::OperatorHandle> find_operator(const std::string& op,
                                                 const std::string& overload) {
  return c10::Dispatcher::singleton().findSchema({op, overload});
}

const GraphArgument* find_argument(const GraphNode& node, const std::string& name) {
  for (const auto& [own, argument] : node.arguments)
    if (own == name) return &argument;
  return nullptr;
}

std::optional<OperatorRefusal> refusal_of(const GraphNode& node) {
  if (node.op == kPythonLayer) return std::nullopt;
  const std::string plain = form_without_change(node.op);
  const std::string_view name = name_of(plain);
  if (trusts_too_much(node, name))
    return OperatorRefusal{"a file may not call this operator, which checks too little",
                           "write this part of the model with other operators"};
  if (draws(node, name))
    return OperatorRefusal{"its random numbers would depend on the mesh",
                           "use dropout or bernoulli_, or leave it out"};
  if (keeps_statistics(node, name))
    return OperatorRefusal{"it keeps statistics, which would depend on the micro-batches",
                           "use batch norm, or track_running_stats=False"};
  return std::nullopt;
}

bool may_share_bytes(const GraphNode& node, const std::string& argument) {
  if (kMayReturnArguments.contains(name_of(node.op))) return true;
  const auto found = find_operator(node.op, node.overload);
  if (!found) return false;
  const std::optional<int> place = found->schema().argumentIndexWithName(argument);
  return place && found->schema().arguments()[static_cast<std::size_t>(*place)].alias_info();
}

std::string changed_argument(const GraphNode& node) {
  const auto found = find_operator(node.op, node.overload);
  if (!found) return "";
  std::string changed;
  for (const c10::Argument& argument : found->schema().arguments()) {
    if (!argument.alias_info() || !argument.alias_info()->isWrite()) continue;
    if (changed.empty() || argument.name() != "self") changed = argument.name();
  }
  return changed;
}

GraphNode without_change(GraphNode node) {
  const std::string plain = form_without_change(node.op);
  if (plain != node.op && plain == "aten::bernoulli" && node.overload == "float")
    node.overload = "p";
  node.op = plain;
  return node;
}

std::string form_without_change(const std::string& op) {
  constexpr std::string_view kInPlace = "aten::__i";
  if (op.starts_with(kInPlace) && op.ends_with("__"))
    return "aten::__" + op.substr(kInPlace.size());
  if (op.ends_with("_") && !op.ends_with("__")) return op.substr(0, op.size() - 1);
  return op;
}

}  // namespace strata
