/// Looks up, layer by layer, where it lives and which values it reads and makes.
#pragma once

#include <vector>

#include "strata/schedule/dataflow.h"

namespace strata::schedule {

/// Errors  InternalError if the partition, the ranks of its stages and the dataflow don't fit
/// together.
struct Placement {
  Placement(const Dataflow& dataflow, const Partition& partition,
            const std::vector<int>& rank_of_stage);

  std::vector<int> stage;                 ///< per layer
  std::vector<int> rank;                  ///< per layer
  std::vector<std::vector<int>> inputs;   ///< per layer: values, ascending
  std::vector<std::vector<int>> outputs;  ///< per layer: values, ascending
};

/// Per layer: whether it owns or uses a tied weight.
std::vector<char> tied_layers(const Dataflow& dataflow);

}  // namespace strata::schedule
