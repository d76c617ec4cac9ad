/// Replays one step on one rank and compares every gradient with the mesh's, bit by bit.
#pragma once

#include <string>
#include <vector>

#include "strata/train/planned_run.h"

namespace strata {

struct LayerComparison {
  std::string layer;
  std::int64_t elements = 0;
  std::int64_t differing = 0;  ///< elements whose bits differ
  double largest_difference = 0;
  std::string first_weight;  ///< the first weight of the layer that differs
};

struct Verification {
  double mesh_loss = 0;
  double reference_loss = 0;
  std::vector<LayerComparison> layers;              ///< in layer order
  const LayerComparison* first_difference() const;  ///< null: all equal
  bool equal() const { return mesh_loss == reference_loss && !first_difference(); }
};

/// The reference runs the same micro-batches on one rank, nothing recomputed. `resume`: take the
/// step after this checkpoint; empty: the first step.
Verification verify(const Recipe& recipe, const PlannedRun& run, const std::string& resume = "");

}  // namespace strata
