/// Says what operators do beyond their results, by the schemas and tags of libtorch, and which ones
/// layers do not run.
///
/// Layers run pieces of a graph more than once and on parts of the mini-batch, and files may come
/// from anywhere. So an operator may not draw random numbers but those of random_step.h, keep
/// statistics, or reach bytes that are not its arguments'.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

#include "strata/exported/exported_program.h"

namespace strata {

/// None: this libtorch has no such operator.
std::optional<c10::OperatorHandle> find_operator(const std::string& op,
                                                 const std::string& overload);

/// The argument of this name; null: the node has none.
const GraphArgument* find_argument(const GraphNode& node, const std::string& name);

struct OperatorRefusal {
  std::string what, fix;
};
/// Why layers do not run the operator; none: they do.
std::optional<OperatorRefusal> refusal_of(const GraphNode& node);

/// Whether results may have the bytes of this argument.
bool may_share_bytes(const GraphNode& node, const std::string& argument);

/// The name of the argument that the operator changes; "": it changes none. It is refused to change
/// others than "self".
std::string changed_argument(const GraphNode& node);

/// "aten::relu_" -> "aten::relu", "aten::__iand__" -> "aten::__and__"
std::string form_without_change(const std::string& op);

/// The node with that form; its arguments keep their names. "bernoulli_.float" -> "bernoulli.p"
GraphNode without_change(GraphNode node);

}  // namespace strata
