#include "strata/plan/search/recompute_steps.h"

#include <algorithm>

namespace strata {
namespace {

using Steps = std::vector<RecomputeStep>;

double seconds_per_byte(const RecomputeStep& from, const RecomputeStep& to) {
  return (to.seconds - from.seconds) / static_cast<double>(from.saved_bytes - to.saved_bytes);
}

// Leaves out the base itself.
Steps lower_hull(const RecomputeStep& base, const Steps& possible) {
  Steps hull{base};
  for (const RecomputeStep& next : possible) {
    if (next.saved_bytes >= hull.back().saved_bytes) continue;
    while (hull.size() > 1 && seconds_per_byte(hull.back(), next) <=
                                  seconds_per_byte(hull[hull.size() - 2], hull.back()))
      hull.pop_back();
    hull.push_back(next);
  }
  hull.erase(hull.begin());
  return hull;
}

}  // namespace

std::vector<RecomputeStep> recompute_steps(const LevelCosts& costs, Recompute base, int layer,
                                           bool whole_layers) {
  const LayerCost& cost = costs[base].layers[layer];
  Steps possible;
  for (int l = static_cast<int>(base) + 1; l < kNumRecomputeLevels; ++l) {
    const auto level = static_cast<Recompute>(l);
    if (!costs.has(level)) continue;
    const LayerCost& deeper = costs[level].layers[layer];
    // A measurement may find that a deeper level takes less time.
    possible.push_back({.level = level,
                        .seconds = std::max(0.0, deeper.backward_seconds - cost.backward_seconds),
                        .saved_bytes = deeper.saved_bytes});
  }
  if (whole_layers && cost.recomputable)
    possible.push_back({.whole = true, .level = base, .seconds = cost.forward_seconds});
  return lower_hull({.level = base, .saved_bytes = cost.saved_bytes}, possible);
}

}  // namespace strata
