/// Cuts a graph at the borders of the user's modules into pieces that become layers.
///
/// A module becomes a piece, unless it is a container (nn.Sequential, nn.ModuleList, nn.ModuleDict)
/// or has more than half of the graph's operators: then its submodules do. What a module computes
/// between its submodules belongs to the piece before. Values that later pieces use are outputs, so
/// skip connections need nothing more; what no weight affects, such as a mask, is computed in each
/// piece that reads it. `borders` names the modules that shall be pieces instead.
///
/// Errors  UserError `[exported.cut]`: a border that is no module of the graph; integers
///         between pieces that weights affect.
#pragma once

#include <string>
#include <vector>

#include "strata/exported/functional_graph.h"

namespace strata {

struct GraphPiece {
  std::string name;  ///< the module's path, with "#2" for its second use
  std::vector<GraphNode> nodes;
  std::vector<std::string> inputs;  ///< values of other pieces and of the model's inputs
  std::vector<std::string> outputs;
  /// That its operators read; frozen parameters are among the buffers.
  std::vector<GraphInput> parameters, buffers;
};

std::vector<GraphPiece> cut_graph(const ExportedProgram& program, const FunctionalGraph& graph,
                                  const std::vector<std::string>& borders = {});

}  // namespace strata
