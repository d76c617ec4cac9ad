/// Rewrites a graph so that no operator changes a value: layers run pieces of it more than once,
/// and their inputs belong to others.
///
/// relu_(x) becomes relu(x), and later nodes use the result. The counter of batch norm's batches is
/// left out.
///
/// Errors  UserError `[exported.read]` with the user's line: a change of bytes that are read later
///         as another value, of an input or of a weight; an operator without a form that changes
///         nothing; a random operator other than dropout; an operator that checks too little for a
///         file from anywhere.
#pragma once

#include <vector>

#include "strata/exported/exported_program.h"

namespace strata {

struct FunctionalGraph {
  std::vector<GraphNode> nodes;
  std::vector<std::string> outputs;
};

FunctionalGraph functional_graph(const ExportedProgram& program);

/// The argument of this name; null: the node has none.
const GraphArgument* find_argument(const GraphNode& node, const std::string& name);
/// Calls `use` with the names of all values that the node reads.
template <typename Use>
void for_values(const GraphNode& node, Use use) {
  for (const auto& [name, argument] : node.arguments) {
    if (const auto* tensor = std::get_if<GraphTensor>(&argument)) use(tensor->name);
    if (const auto* tensors = std::get_if<GraphTensors>(&argument))
      for (const GraphTensor& each : *tensors)
        if (!each.name.empty()) use(each.name);
  }
}

}  // namespace strata
