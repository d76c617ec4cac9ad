/// Lists what a layer may do to save fewer bytes, in steps.
///
/// A step is a deeper level of recompute (layout/recompute.h) or, last, a run of the whole layer.
/// Only steps on the lower convex hull of bytes and seconds count: each costs more seconds for a
/// byte than the one before it, so a search takes them in this order.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/layout/costs.h"

namespace strata {

struct RecomputeStep {
  bool whole = false;  ///< the layer runs again as a whole; otherwise at the level
  Recompute level = Recompute::kCheap;
  double seconds = 0;            ///< that it takes, compared with the base
  std::int64_t saved_bytes = 0;  ///< that remain
  friend bool operator==(const RecomputeStep&, const RecomputeStep&) = default;
};

/// The steps of a layer whose level is `base`. `whole_layers`: whether it may run again as a whole.
std::vector<RecomputeStep> recompute_steps(const LevelCosts& costs, Recompute base, int layer,
                                           bool whole_layers = true);

}  // namespace strata
