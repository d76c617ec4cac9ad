/// Replaces the seconds of a plan's layers by those that training has measured.
#pragma once

#include <vector>

#include "strata/layout/costs.h"
#include "strata/pipeline/layer_seconds.h"
#include "strata/plan/search/planner.h"

namespace strata {

/// `trained`: by layer; parts that were not measured keep the plan's seconds, as do updates if
/// replicas send signs. Spans of ranks that share a device include each other's work, so the result
/// has no shared devices.
CostTable with_trained_seconds(const Plan& plan, const std::vector<LayerSeconds>& trained);

}  // namespace strata
