/// Replays one step on one rank and compares every gradient with the mesh's.
///
/// Pipelines must have the same bits. Replicas, ranks that divide samples or layers, and attention
/// in blocks add in another order: their difference is bounded by kGradientTolerance of the layer's
/// largest gradient.
#pragma once

#include <string>
#include <vector>

#include "strata/run/planned_run.h"

namespace strata {

inline constexpr double kGradientTolerance = 1e-4;
inline constexpr double kLossTolerance = 1e-5;

struct LayerComparison {
  std::string layer;
  std::int64_t elements = 0;
  std::int64_t differing = 0;  ///< elements whose bits differ
  double largest_difference = 0;
  double largest_gradient = 0;  ///< of the reference
  std::string first_weight;     ///< the first weight of the layer that differs
  std::string worst_weight;     ///< the weight with the largest difference
};

struct Verification {
  double mesh_loss = 0;
  double reference_loss = 0;
  bool bits_expected = true;            ///< the mesh has only a pipeline
  std::vector<LayerComparison> layers;  ///< in layer order
  /// The first layer whose difference exceeds the bound; null: none.
  const LayerComparison* first_difference() const;
  bool holds() const;
};

/// The reference runs the same micro-batches on one rank without recompute. `resume`: compares the
/// step after this checkpoint; empty: the first step.
Verification verify(const Recipe& recipe, const PlannedRun& run, const std::string& resume = "");

}  // namespace strata
