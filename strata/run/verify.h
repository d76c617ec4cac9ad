/// Replays one step on one rank and compares every gradient with the mesh's.
///
/// Pipelines must give the same bits. Replicas and tensor-parallel ranks add in another order:
/// there the difference has a bound, kGradientTolerance of the layer's largest gradient.
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
  double largest_gradient = 0;  ///< of one rank
  std::string first_weight;     ///< the first weight of the layer that differs
  std::string worst_weight;     ///< the one that differs most
};

struct Verification {
  double mesh_loss = 0;
  double reference_loss = 0;
  bool bits_expected = true;            ///< the mesh is a pipeline alone
  std::vector<LayerComparison> layers;  ///< in layer order
  /// The first layer that differs by more than it may; null: none.
  const LayerComparison* first_difference() const;
  bool holds() const;
};

/// The reference runs the same micro-batches on one rank, nothing recomputed. `resume`: take the
/// step after this checkpoint; empty: the first step.
Verification verify(const Recipe& recipe, const PlannedRun& run, const std::string& resume = "");

}  // namespace strata
