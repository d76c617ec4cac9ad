/// Rewrites a graph so that no operator changes a value: layers run pieces of it more than once,
/// and their inputs belong to others.
///
/// relu_(x) becomes relu(x), and later nodes use the result. A write to a slice or a selected part
/// of a value becomes slice_scatter or select_scatter of the value. The counter of batch norm's
/// batches is left out.
///
/// Errors  UserError `[exported.read]` with the user's line: a change of bytes that are read later
///         as another value, of an input or of a weight; an operator without a form that changes
///         nothing; one that layers do not run (operator_rules.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "strata/exported/exported_program.h"

namespace strata {

struct FunctionalGraph {
  std::vector<GraphNode> nodes;
  /// Values that the program does not have, with one that has their shape.
  std::map<std::string, std::string> new_values;
  std::vector<std::string> outputs;
};

FunctionalGraph functional_graph(const ExportedProgram& program);

/// Calls `use` with the names of all values of an argument.
template <typename Use>
void for_values(const GraphArgument& argument, Use use) {
  if (const auto* tensor = std::get_if<GraphTensor>(&argument)) use(tensor->name);
  if (const auto* tensors = std::get_if<GraphTensors>(&argument))
    for (const GraphTensor& each : *tensors)
      if (!each.name.empty()) use(each.name);
}

/// Of all values that the node reads.
template <typename Use>
void for_values(const GraphNode& node, Use use) {
  for (const auto& [name, argument] : node.arguments) for_values(argument, use);
}

}  // namespace strata
