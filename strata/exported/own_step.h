/// Runs linear layers and layer norms of a graph by Strata's own operations (nn/ops/linear.h)
/// instead of ATen's: faster on a processor, with other rounding.
///
/// Only nodes whose weights are parameters of the layer, because these operations add to a leaf's
/// gradient themselves.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "strata/exported/exported_program.h"

namespace strata {

/// linear(x), or the norm of x's last dimension.
struct OwnStep {
  bool is_norm = false;
  int x, weight, bias, y;  ///< slots; bias: -1: none
  double epsilon = 0;
  void run(std::vector<at::Tensor>& values) const;
};

/// None: the node is another operator, one of its weights is no parameter, or the shapes do not fit
/// one another.
std::optional<OwnStep> own_step(const ExportedProgram& program, const GraphNode& node,
                                const std::set<std::string>& parameters,
                                const std::function<int(const std::string&)>& slot_of);

}  // namespace strata
