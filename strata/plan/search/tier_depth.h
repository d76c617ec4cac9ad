/// Finds the deepest model of the request's shape that each tier can hold: with more layers of its
/// most frequent kind, under the same budgets.
///
/// Cost  about six proposals per tier, each up to the first plan that fits.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "strata/plan/search/planner.h"

namespace strata {

struct TierDepth {
  std::string placement;  ///< "on the device", "gradients and states on the host", ...
  int layers = 0;         ///< 0: not even the model of the request fits
  int blocks = 0;         ///< of these, the layers of the most frequent kind
  double parameters = 0;  ///< parameters of that many layers, over all tensor-parallel ranks
  bool any = false;       ///< every depth that was tried fits
};

/// Returns the model with `copies` more of its most frequent layer, inserted after one of that
/// kind.
PlanRequest deepened(PlanRequest request, int copies);

/// Weights on the host use a window of two layers. Empty: no budget, or the model has no layer with
/// one input and one output. `parameters`: per layer, over all tensor-parallel ranks.
std::vector<TierDepth> largest_depths(const PlanRequest& request,
                                      const std::vector<double>& parameters);

/// "largest of this shape: model.layers=12 (1.7 G) on the device, model.layers=31 (2.1 G) with
/// gradients and states on the host". `field`: of a recipe, that sets the number of blocks; empty:
/// "12 equal layers".
std::string depths_sentence(const std::vector<TierDepth>& depths, const std::string& field);
nlohmann::json to_json(const std::vector<TierDepth>& depths);

}  // namespace strata
