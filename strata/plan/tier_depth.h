/// Finds the deepest model of a request's own shape that each tier holds: more of the layers that it
/// has most of, under the same budgets.
///
/// Cost  about six proposals a tier, each to the first plan that fits.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "strata/plan/planner.h"

namespace strata {

struct TierDepth {
  std::string placement;  ///< "on the device", "gradients and states on the host", ...
  int layers = 0;         ///< 0: not even the request's own model fits
  int blocks = 0;         ///< of these, those of its most frequent kind
  double parameters = 0;  ///< of that many, of all slices together
  bool any = false;       ///< as many as were tried
};

/// The model with `copies` more of its most frequent layer behind one of that kind.
PlanRequest deepened(PlanRequest request, int copies);

/// With weights on the host, in a window of two layers. Empty: without a budget, or of a model that has
/// no layer with one input and one output. `parameters`: of each layer, whatever slice of it a rank has.
std::vector<TierDepth> largest_depths(const PlanRequest& request,
                                      const std::vector<double>& parameters);

/// "largest of this shape: model.layers=12 (1.7 G) on the device, model.layers=31 (2.1 G) with gradients and states
/// on the host". `field`: of a recipe, that sets the number of blocks; empty: "12 equal layers".
std::string depths_sentence(const std::vector<TierDepth>& depths, const std::string& field);
nlohmann::json to_json(const std::vector<TierDepth>& depths);

}  // namespace strata
